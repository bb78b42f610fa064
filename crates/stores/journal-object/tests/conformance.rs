//! The suite of all journals, on real servers: plain, and with requests and answers that get lost on the way.

#![allow(clippy::unwrap_used)]

mod support;

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use millrace_conformance::journal::{CASES, FaultPlan, FaultyJournal, JournalSubject, run_case};
use millrace_journal::Journal;
use millrace_journal_object::{ObjectJournal, ObjectUrl};
use support::{SEAWEED, TestPlace};

fn plain(place: TestPlace) -> JournalSubject {
    let first = Arc::new(place.open());
    JournalSubject::new(first, move || Arc::new(place.open()) as Arc<dyn Journal>)
}

/// Every fifth request is lost, and every fifth answer; some are repeated, and some are carried out late.
fn faulty(place: TestPlace) -> JournalSubject {
    let open = move |seed| -> Arc<dyn Journal> {
        let plan = FaultPlan {
            seed,
            lose_request_every: 5,
            lose_answer_every: 5,
            repeat_every: 7,
            late_every: 6,
            delay_every: 0,
        };
        Arc::new(FaultyJournal::new(Arc::new(place.open()), plan))
    };
    JournalSubject::new(open(1), move || open(2)).unreliable()
}

mod seaweed {
    millrace_conformance::journal_suite!(|| super::TestPlace::at(super::SEAWEED).map(super::plain));
}

#[test]
fn all_cases_on_seaweed_with_faults() {
    all_cases(|| TestPlace::at(SEAWEED).map(faulty));
}

#[test]
fn all_cases_on_moto() {
    all_cases(|| TestPlace::on_moto().map(plain));
}

/// On any provider, for people who have an account: `TEST_OBJECT_URL` names a bucket and a prefix, credentials
/// come from the environment. Manifests of the cases are left below the prefix.
#[test]
fn all_cases_at_a_url() {
    all_cases(|| {
        let Ok(url) = std::env::var("TEST_OBJECT_URL") else {
            println!("skipped: TEST_OBJECT_URL is not set");
            return None;
        };
        let (place, parameters) = url.split_once('?').unwrap_or((&url, ""));
        let url = format!("{place}/test-{:016x}?{parameters}", rand::random::<u64>());
        let open = move || {
            let url = ObjectUrl::parse(&url).expect("a scheme of object storage").expect("a right URL");
            Arc::new(ObjectJournal::open(&url).expect("right settings")) as Arc<dyn Journal>
        };
        Some(JournalSubject::new(open(), open))
    });
}

/// Runs the cases on several threads: most of their time they wait for creators that lose a race on SeaweedFS, once in
/// each check.
fn all_cases(open: fn() -> Option<JournalSubject>) {
    const THREADS: usize = 6;
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some((name, _)) = CASES.get(next.fetch_add(1, Ordering::SeqCst)) {
                    if catch_unwind(|| run_case(name, open())).is_err() {
                        failed.lock().unwrap().push(*name);
                    }
                }
            });
        }
    });
    assert_eq!(failed.into_inner().unwrap(), Vec::<&str>::new(), "these cases failed");
}
