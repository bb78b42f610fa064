//! The suite of journals finds journals that break a promise: each breach fails the case that is about it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use millrace_conformance::journal::{CASES, JournalSubject};
use millrace_journal::{
    Fitness, HeadGuard, Journal, JournalError, JournalReadLimit, ManifestRead, ManifestVersion,
    MemoryJournal, PartName, Placed, Placing,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Breach {
    None,
    /// A store that ignores the condition of a put.
    AnswersYesToTakenNumbers,
    /// Looks first and writes then.
    PlacesInTwoSteps,
    HidesTheNewestRecord,
    IgnoresTheRecordLimit,
    IgnoresTheByteLimit,
    FindsNothingBehindDeletedNumbers,
    DeletesOneTooMany,
    ClaimsToGuardItsHead,
    ReplacesAnyManifest,
    ComparesTheManifestInTwoSteps,
    ListsOnePageOfParts,
}

struct BrokenJournal {
    inner: Arc<MemoryJournal>,
    breach: Breach,
}

impl BrokenJournal {
    fn is(&self, breach: Breach) -> bool {
        self.breach == breach
    }
}

impl Journal for BrokenJournal {
    fn check(&self) -> Result<Fitness, JournalError> {
        let mut fitness = self.inner.check()?;
        if self.is(Breach::ClaimsToGuardItsHead) {
            fitness.head_guard = HeadGuard::Engine;
        }
        Ok(fitness)
    }

    fn place(&self, placing: &Placing<'_>) -> Result<Placed, JournalError> {
        if self.is(Breach::PlacesInTwoSteps) {
            let one = JournalReadLimit { records_max: 1, bytes_max: 0 };
            if self.inner.read(placing.n, one)?.iter().any(|(n, _)| *n == placing.n) {
                return Ok(Placed::Taken);
            }
            thread::yield_now();
            self.inner.place(placing)?;
            return Ok(Placed::Yes);
        }
        let placed = self.inner.place(placing)?;
        Ok(if self.is(Breach::AnswersYesToTakenNumbers) { Placed::Yes } else { placed })
    }

    fn read(&self, from: u64, mut limit: JournalReadLimit) -> Result<Vec<(u64, Bytes)>, JournalError> {
        match self.breach {
            Breach::IgnoresTheRecordLimit => limit.records_max += 1,
            Breach::IgnoresTheByteLimit => limit.bytes_max = usize::MAX,
            _ => {}
        }
        let mut found = self.inner.read(from, limit)?;
        let hides = self.is(Breach::HidesTheNewestRecord) && found.len() < limit.records_max;
        let is_lost = self.is(Breach::FindsNothingBehindDeletedNumbers)
            && found.first().is_some_and(|(n, _)| from.max(1) < *n);
        if hides {
            found.pop();
        }
        if is_lost {
            found.clear();
        }
        Ok(found)
    }

    fn manifest(&self) -> Result<Option<ManifestRead>, JournalError> {
        self.inner.manifest()
    }

    fn set_manifest(&self, new: &[u8], was: Option<&ManifestVersion>) -> Result<bool, JournalError> {
        let standing = self.inner.manifest()?.map(|read| read.version);
        match self.breach {
            Breach::ReplacesAnyManifest => self.inner.set_manifest(new, standing.as_ref()),
            Breach::ComparesTheManifestInTwoSteps if standing.as_ref() == was => {
                thread::yield_now();
                self.inner.set_manifest(new, was)?;
                Ok(true)
            }
            _ => self.inner.set_manifest(new, was),
        }
    }

    fn put_part(&self, name: &PartName, bytes: &[u8]) -> Result<(), JournalError> {
        self.inner.put_part(name, bytes)
    }

    fn get_part(&self, name: &PartName) -> Result<Option<Bytes>, JournalError> {
        self.inner.get_part(name)
    }

    fn parts(&self) -> Result<Vec<PartName>, JournalError> {
        let mut parts = self.inner.parts()?;
        if self.is(Breach::ListsOnePageOfParts) {
            parts.truncate(1_000);
        }
        Ok(parts)
    }

    fn delete_part(&self, name: &PartName) -> Result<(), JournalError> {
        self.inner.delete_part(name)
    }

    fn delete_below(&self, n: u64) -> Result<(), JournalError> {
        self.inner.delete_below(n + u64::from(self.is(Breach::DeletesOneTooMany)))
    }
}

fn subject(breach: Breach) -> JournalSubject {
    let inner = Arc::new(MemoryJournal::new());
    let open = move || -> Arc<dyn Journal> { Arc::new(BrokenJournal { inner: Arc::clone(&inner), breach }) };
    JournalSubject::new(open(), open)
}

fn failing(breach: Breach) -> Vec<&'static str> {
    let fails = |case: &fn(&JournalSubject)| {
        let subject = subject(breach);
        catch_unwind(AssertUnwindSafe(|| case(&subject))).is_err()
    };
    CASES.iter().filter(|(_, case)| fails(case)).map(|(name, _)| *name).collect()
}

#[test]
fn a_sound_journal_passes_every_case() {
    assert_eq!(failing(Breach::None), [""; 0]);
}

#[test]
fn each_breach_fails_the_case_that_is_about_it() {
    let breaches = [
        (Breach::AnswersYesToTakenNumbers, "a_taken_number_is_refused_and_the_first_record_stays"),
        (Breach::AnswersYesToTakenNumbers, "racing_writers_of_one_number_have_one_winner"),
        (Breach::HidesTheNewestRecord, "a_placed_record_is_visible_to_another_handle_at_once"),
        (Breach::IgnoresTheRecordLimit, "pages_end_at_their_record_limit"),
        (Breach::IgnoresTheByteLimit, "pages_end_at_their_byte_limit_but_hold_one_record"),
        (Breach::FindsNothingBehindDeletedNumbers, "deleting_leaves_all_numbers_from_the_given_one_on"),
        (Breach::DeletesOneTooMany, "deleting_leaves_all_numbers_from_the_given_one_on"),
        (Breach::ClaimsToGuardItsHead, "a_deleted_number_stays_taken_where_the_engine_guards_its_head"),
        (Breach::ClaimsToGuardItsHead, "an_engine_that_guards_its_head_refuses_gaps_and_other_histories"),
        (Breach::ReplacesAnyManifest, "a_manifest_is_replaced_only_at_its_version"),
        (Breach::ListsOnePageOfParts, "more_parts_than_one_page_are_listed"),
    ];
    for (breach, expected) in breaches {
        let failing = failing(breach);
        assert!(failing.contains(&expected), "{breach:?} fails only {failing:?}");
    }
}

/// Whether two threads meet between the steps is chance, so that the race is run until they do.
#[test]
fn comparing_in_two_steps_is_found() {
    for (breach, expected) in [
        (Breach::PlacesInTwoSteps, "racing_writers_of_one_number_have_one_winner"),
        (Breach::ComparesTheManifestInTwoSteps, "racing_writers_of_the_manifest_have_one_winner"),
    ] {
        let case = CASES.iter().find(|(name, _)| *name == expected).map(|(_, case)| case);
        let case = case.expect("the case exists");
        let is_found = (0..1_000).any(|_| {
            let subject = subject(breach);
            catch_unwind(AssertUnwindSafe(|| case(&subject))).is_err()
        });
        assert!(is_found, "{breach:?}");
    }
}
