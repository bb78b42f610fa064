//! A failed write stops every handle, in this process and in others, until all are closed.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use millrace_conformance::build::{append, batch, stream};
use millrace_model::{Batch, Offset, Outcome};
use millrace_store::{ReadLimit, Store, StoreError};
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

const WHOLE: ReadLimit = ReadLimit { events_max: 100_000, bytes_max: usize::MAX };

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

fn sql(path: &Path, sql: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// Makes the next transaction of every handle fail: a row of the bookkeeping cannot be decoded.
fn spoil(path: &Path) {
    sql(path, "INSERT INTO commits (c, seq, runs) SELECT max(c) + 1, max(seq), x'00' FROM commits");
}

fn mend(path: &Path) {
    sql(path, "DELETE FROM commits WHERE runs = x'00'");
}

fn one_more() -> [Batch; 1] {
    [batch(1, vec![append(&stream("t", 0), "more")])]
}

/// Writes ten events, then makes a transaction of `store` fail.
fn poison(store: &SqliteStore, path: &Path) {
    for n in 0..10 {
        store.commit(&[batch(n, vec![append(&stream("t", 0), "x")])]).unwrap();
    }
    spoil(path);
    match store.commit(&one_more()) {
        Err(StoreError::Poisoned(reason)) => assert!(reason.text().contains("damaged"), "{reason}"),
        other => panic!("{other:?}"),
    }
    mend(path);
}

#[allow(clippy::needless_pass_by_value)]
fn is_poisoned<T>(result: Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Poisoned(_)))
}

#[test]
fn a_failed_transaction_poisons_every_handle_and_reopening_finds_all_that_was_confirmed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let (failed, other) = (open(&path), open(&path));
    let s = stream("t", 0);
    poison(&failed, &path);
    assert!(is_poisoned(failed.commit(&one_more())));
    assert!(is_poisoned(failed.maintain(10)));
    assert!(
        is_poisoned(other.commit(&one_more())),
        "the other handle met no failure, and must not write either"
    );
    assert!(is_poisoned(other.maintain(10)));
    assert!(failed.poisoned().is_some() && other.poisoned().is_some());
    for store in [&failed, &other] {
        assert_eq!(store.read(&s, Offset(1), WHOLE).unwrap().events.len(), 10);
    }

    drop(failed);
    let third = open(&path);
    assert!(is_poisoned(third.commit(&one_more())), "as long as one handle is open, the flag stays");
    drop((other, third));
    let fresh = open(&path);
    assert_eq!(fresh.poisoned(), None);
    let Outcome::Done(done) = &fresh.commit(&one_more()).unwrap()[0] else { panic!() };
    assert_eq!(done.appended[0].offset, Offset(11));
    assert_eq!(fresh.read(&s, Offset(1), WHOLE).unwrap().damaged, []);
}

#[test]
fn a_store_that_cannot_recover_is_readable_and_says_why_it_is_not_writable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path);
    poison(&store, &path);
    // Another program's long read keeps the log from being emptied.
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT count(*) FROM events", [], |_| Ok(())).unwrap();
    drop(store);
    let held =
        SqliteStore::open(&path, SqliteOptions { busy_timeout_ms: 50, ..SqliteOptions::default() }).unwrap();
    assert!(held.poisoned().is_some_and(|reason| reason.contains("damaged")));
    assert_eq!(held.read(&stream("t", 0), Offset(1), WHOLE).unwrap().events.len(), 10);
    drop((reader, held));
    assert_eq!(open(&path).poisoned(), None);
}

/// An opener that fails before it has recovered must not make the next one believe that there is nothing to recover.
#[test]
fn the_flag_stays_up_until_somebody_has_recovered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    poison(&open(&path), &path);
    let flag = || std::fs::read(folder.path().join("store.db-locks/poison")).unwrap()[0];
    assert_eq!(flag(), b'!');

    let stranger = rusqlite::Connection::open(&path).unwrap();
    stranger.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    let options = SqliteOptions { busy_timeout_ms: 10, ..SqliteOptions::default() };
    let refused = SqliteStore::open(&path, options).unwrap_err();
    assert!(
        matches!(&refused, StoreError::Unusable(reason) if reason.text().contains("locked")),
        "{refused}"
    );
    assert_eq!(flag(), b'!', "nobody has recovered yet");

    drop(stranger);
    assert_eq!(open(&path).poisoned(), None);
    assert_eq!(flag(), b'-');
}
