//! Looks whether a provider keeps the promises that a journal needs, by trying them on objects of its own: that a key is
//! created once, that a version is compared, and that an object is there when its writing was confirmed.
//!
//! Providers that ignore conditions answer every request with success, so nothing but trying shows them.

use bytes::Bytes;
use futures_util::future::join_all;
use millrace_journal::{Fitness, HeadGuard, JournalError};
use object_store::path::Path;

use crate::journal::JournalObjects;
use crate::provider::is_replicating;
use crate::request::RequestFailure;

/// Races of creators, run only when the store is made: they take the longest, and a provider keeps its nature.
const RACES: usize = 4;
const CREATORS: usize = 8;
/// The name of the object that is created and replaced.
const CREATE: &str = "create";
/// Objects of a check that was killed are deleted by a later one when they are this old.
const LEFTOVER_SECONDS: i64 = 3_600;
/// Objects that a check looks at when it cleans up; the next check finds the rest.
const CLEANED_MAX: usize = 1_000;

pub(crate) async fn check(objects: &JournalObjects) -> Result<Fitness, JournalError> {
    let manifest = objects.bucket.get(&objects.keys.manifest()).await?;
    let probe = Probe { objects, name: format!("{:016x}", rand::random::<u64>()) };
    let tried = probe.try_promises(manifest.is_none()).await;
    let cleaned = probe.clean().await;
    let tried = match (tried, cleaned) {
        (Ok(mut tried), Ok(is_listed)) => {
            if !is_listed {
                let remark =
                    "a new object is not listed at once: what is deleted by listing is deleted later";
                tried.remarks.push(remark.to_owned());
            }
            tried
        }
        (Ok(_), Err(failure)) => return Err(failure.into()),
        (Err(error), Ok(_)) => return Err(error),
        (Err(error), Err(failure)) => {
            tracing::warn!(%failure, "objects of a check are left in the bucket; a later check deletes them");
            return Err(error);
        }
    };
    let context = &objects.bucket.context;
    let software = tried.server_name.map_or_else(String::new, |name| format!(" ({name})"));
    Ok(Fitness {
        engine: format!("object storage {} at {}{software}", context.url, context.host),
        is_replicated: context.url.replicated.unwrap_or_else(|| is_replicating(&context.host)),
        head_guard: HeadGuard::Manifest,
        remarks: tried.remarks,
    })
}

struct Probe<'a> {
    objects: &'a JournalObjects,
    /// Random, so that servers can check at the same time.
    name: String,
}

#[derive(Default)]
struct Tried {
    server_name: Option<String>,
    remarks: Vec<String>,
}

impl Probe<'_> {
    async fn try_promises(&self, is_new: bool) -> Result<Tried, JournalError> {
        let mut tried = Tried::default();
        let first = self.try_creating(&mut tried).await?;
        self.try_replacing(first).await?;
        if is_new {
            // At the same time: a server may make losers wait for seconds (SeaweedFS does).
            let races = join_all((0..RACES).map(|race| self.try_race(race))).await;
            races.into_iter().collect::<Result<(), JournalError>>()?;
        }
        Ok(tried)
    }

    /// Creates a key twice. Returns the version of the object.
    async fn try_creating(&self, tried: &mut Tried) -> Result<String, JournalError> {
        let (bucket, key) = (&self.objects.bucket, self.key(CREATE));
        let created = bucket.create(&key, Bytes::from_static(b"first")).await.map_err(unfit_if_foreign)?;
        let Some(created) = created else {
            return Err(unfit(
                "a new key cannot be created with If-None-Match: the server says that it is taken",
            ));
        };
        let read = bucket.get(&key).await?;
        let Some(read) = read.filter(|object| object.bytes == b"first"[..]) else {
            return Err(unfit(
                "an object is not there right after it was written (no read-after-write consistency)",
            ));
        };
        tried.server_name = read.server_name;
        if created.is_versioned {
            let remark = "the bucket keeps old versions of objects: add a lifecycle rule that expires noncurrent \
                          versions, or deleted records stay and are paid for";
            tried.remarks.push(remark.to_owned());
        }
        let again = bucket.create(&key, Bytes::from_static(b"again")).await.map_err(unfit_if_foreign)?;
        if again.is_some() {
            return Err(unfit("a key was created twice: the server ignores If-None-Match"));
        }
        let read = bucket.get(&key).await?;
        if read.is_none_or(|object| object.bytes != b"first"[..]) {
            return Err(unfit("a second creation was refused and changed the object all the same"));
        }
        created
            .version
            .ok_or_else(|| unfit("the server sends no entity tags, so versions cannot be compared"))
    }

    /// Replaces the object, and then tries to replace its first version again.
    async fn try_replacing(&self, first: String) -> Result<(), JournalError> {
        let (bucket, key) = (&self.objects.bucket, self.key(CREATE));
        let second = bucket.replace(&key, Bytes::from_static(b"second"), first.clone()).await;
        if second.map_err(unfit_if_foreign)?.is_none() {
            return Err(unfit("an object cannot be replaced with If-Match and the entity tag it has"));
        }
        let stale = bucket.replace(&key, Bytes::from_static(b"stale"), first).await;
        if stale.map_err(unfit_if_foreign)?.is_some() {
            return Err(unfit("an object was replaced with a stale entity tag: the server ignores If-Match"));
        }
        let read = bucket.get(&key).await?;
        if read.is_none_or(|object| object.bytes != b"second"[..]) {
            return Err(unfit("an object is not what was written last"));
        }
        Ok(())
    }

    /// Several creators of one key: one of them must win, and its bytes must be there.
    async fn try_race(&self, race: usize) -> Result<(), JournalError> {
        let (bucket, key) = (&self.objects.bucket, self.key(&race_name(race)));
        let creator = |number: usize| Bytes::from(format!("creator {number}"));
        let outcomes = join_all((0..CREATORS).map(|number| bucket.create(&key, creator(number)))).await;
        let is_winner = |outcome: &Result<Option<_>, RequestFailure>| matches!(outcome, Ok(Some(_)));
        let winners = outcomes.iter().filter(|outcome| is_winner(outcome)).count();
        if winners > 1 {
            let text = format!(
                "{winners} of {CREATORS} creators of one key were told that they won: conditions race"
            );
            return Err(unfit(&text));
        }
        let winner = outcomes.iter().position(is_winner);
        // A creator without an answer may have won.
        if let Some(failure) = outcomes.into_iter().find_map(Result::err) {
            return Err(failure.into());
        }
        let Some(winner) = winner else {
            return Err(unfit(&format!("none of {CREATORS} creators of a free key won")));
        };
        let read = bucket.get(&key).await?;
        if read.is_none_or(|object| object.bytes != creator(winner)) {
            return Err(unfit("the object of the creator that won is not there"));
        }
        Ok(())
    }

    /// Deletes the objects of this check, and those that are left of checks that were killed. Needs the rights to list
    /// and to delete, which are thereby tried as well. Returns whether the listing had an object of this check.
    async fn clean(&self) -> Result<bool, RequestFailure> {
        let folder = self.objects.keys.probes();
        let mut listing = self.objects.bucket.list(&folder);
        let mut listed = Vec::new();
        while listed.len() < CLEANED_MAX {
            let Some(object) = listing.next().await? else { break };
            listed.push(object);
        }
        let mut own = vec![self.key(CREATE)];
        own.extend((0..RACES).map(|race| self.key(&race_name(race))));
        let is_listed = listed.iter().any(|object| own.contains(&object.location));
        // By the provider's clock: the newest object is of now.
        let now = listed.iter().map(|object| object.last_modified.timestamp()).max().unwrap_or_default();
        let old = listed.into_iter().filter(|object| {
            let age = now.saturating_sub(object.last_modified.timestamp());
            age > LEFTOVER_SECONDS && !own.contains(&object.location)
        });
        let mut gone: Vec<Path> = old.map(|object| object.location).collect();
        gone.extend(own);
        self.objects.bucket.delete(&gone).await?;
        Ok(is_listed)
    }

    fn key(&self, what: &str) -> Path {
        self.objects.keys.probes().join(format!("{}-{what}", self.name))
    }
}

fn race_name(race: usize) -> String {
    format!("race-{race}")
}

fn unfit(reason: &str) -> JournalError {
    let promise = "a journal on object storage needs conditional writes (If-None-Match: * and If-Match)";
    JournalError::Unfit(format!("{reason}; {promise}: use another provider, or a newer version of this one"))
}

/// At the start a server that does not speak the protocol is refused, where later it would be tried again.
fn unfit_if_foreign(failure: RequestFailure) -> JournalError {
    if failure.is_foreign { unfit(&failure.text) } else { failure.into() }
}
