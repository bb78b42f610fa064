//! A failed write stops every handle, in this process and in others, until all have let go.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use millrace_model::{Offset, Outcome};
use millrace_store::conformance::build::{append, batch, stream};
use millrace_store::{ReadLimit, Store, StoreError};
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

const WHOLE: ReadLimit = ReadLimit { events_max: 100_000, bytes_max: usize::MAX };

fn open(path: &Path, file_bytes_max: Option<u64>) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions { file_bytes_max, ..SqliteOptions::default() }).unwrap()
}

/// Writes until the disk is full. Answers with how many events were confirmed before.
fn fill(store: &SqliteStore) -> u64 {
    let text = "x".repeat(2000);
    for confirmed in 0.. {
        match store.commit(&[batch(confirmed, vec![append(&stream("full", 0), &text)])]) {
            Ok(outcomes) => assert!(matches!(outcomes[0], Outcome::Done(_))),
            Err(StoreError::Poisoned(reason)) => {
                assert!(reason.contains("full"), "{reason}");
                return confirmed;
            }
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!()
}

#[allow(clippy::needless_pass_by_value)]
fn is_poisoned<T>(result: Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Poisoned(_)))
}

#[test]
fn a_full_disk_poisons_every_handle_and_reopening_finds_all_that_was_confirmed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let (full, other) = (open(&path, Some(400 << 10)), open(&path, None));
    let s = stream("full", 0);
    let confirmed = fill(&full);
    assert!(confirmed > 10);
    let one_more = || [batch(1, vec![append(&s, "more")])];
    assert!(is_poisoned(full.commit(&one_more())));
    assert!(is_poisoned(full.maintain(10)));
    assert!(
        is_poisoned(other.commit(&one_more())),
        "the other handle has all the room it wants, and must not use it"
    );
    assert!(is_poisoned(other.maintain(10)));
    assert!(full.poisoned().is_some() && other.poisoned().is_some());
    for store in [&full, &other] {
        assert_eq!(store.read(&s, Offset(1), WHOLE).unwrap().events.len() as u64, confirmed);
    }

    drop(full);
    let third = open(&path, None);
    assert!(is_poisoned(third.commit(&one_more())), "as long as one handle is open, the flag stays");
    drop((other, third));
    let fresh = open(&path, None);
    assert_eq!(fresh.poisoned(), None);
    let Outcome::Done(done) = &fresh.commit(&one_more()).unwrap()[0] else { panic!() };
    assert_eq!(done.appended[0].offset, Offset(confirmed + 1));
    assert_eq!(fresh.read(&s, Offset(1), WHOLE).unwrap().damaged, []);
}

#[test]
fn a_store_that_cannot_recover_is_readable_and_says_why_it_is_not_writable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path, Some(400 << 10));
    let confirmed = fill(&store);
    // Someone else's long read keeps the log from being emptied.
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT count(*) FROM events", [], |_| Ok(())).unwrap();
    drop(store);
    let held =
        SqliteStore::open(&path, SqliteOptions { busy_timeout_ms: 50, ..SqliteOptions::default() }).unwrap();
    assert!(held.poisoned().is_some_and(|reason| reason.contains("full")));
    assert_eq!(held.read(&stream("full", 0), Offset(1), WHOLE).unwrap().events.len() as u64, confirmed);
    drop((reader, held));
    assert_eq!(open(&path, None).poisoned(), None);
}

/// An opener that fails before it has recovered must not make the next one believe that there is nothing to recover.
#[test]
fn the_flag_stays_up_until_somebody_has_recovered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    fill(&open(&path, Some(400 << 10)));
    let flag = || std::fs::read(folder.path().join("store.db-locks/poison")).unwrap()[0];
    assert_eq!(flag(), b'!');

    let stranger = rusqlite::Connection::open(&path).unwrap();
    stranger.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    let options = SqliteOptions { busy_timeout_ms: 10, ..SqliteOptions::default() };
    let refused = SqliteStore::open(&path, options).unwrap_err();
    assert!(matches!(&refused, StoreError::Unusable(reason) if reason.contains("locked")), "{refused}");
    assert_eq!(flag(), b'!', "nobody has recovered yet");

    drop(stranger);
    assert_eq!(open(&path, None).poisoned(), None);
    assert_eq!(flag(), b'-');
}

#[test]
fn a_batch_that_does_not_fit_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let s = stream("full", 0);
    let store = open(&path, Some(1 << 20));
    store.commit(&[batch(1, vec![append(&s, "kept")])]).unwrap();
    let large = batch(2, (0..4).map(|_| append(&s, &"x".repeat(1 << 20))).collect());
    assert!(is_poisoned(store.commit(&[batch(2, vec![append(&s, "same commit")]), large])));
    assert_eq!(store.read(&s, Offset(1), WHOLE).unwrap().events.len(), 1);
    drop(store);
    let again = open(&path, None);
    assert_eq!(again.read(&s, Offset(1), WHOLE).unwrap().events.len(), 1);
}
