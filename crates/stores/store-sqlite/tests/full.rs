//! A full disk or another program's lock: nothing is written, nothing is poisoned, and the same commit succeeds later.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use millrace_conformance::build::{DAY_MS, append, append_id, batch, drop_topic, stream, trim};
use millrace_model::{Batch, Offset, Outcome, Stream};
use millrace_store::{ReadLimit, Store, StoreError};
use millrace_store_sqlite::{Doctor, SqliteOptions, SqliteStore};

const WHOLE: ReadLimit = ReadLimit { events_max: 100_000, bytes_max: usize::MAX };

/// SQLite fails with SQLITE_FULL when the file would grow past the limit, as it does when the disk is full.
fn open_small(path: &Path) -> SqliteStore {
    let options = SqliteOptions {
        file_bytes_max: Some(600 << 10),
        fold_events: 64,
        loc_events_max: 8,
        commits_kept: 4,
        wal_bytes: 64 << 10,
        ..SqliteOptions::default()
    };
    SqliteStore::open(path, options).unwrap()
}

fn open(path: &Path, busy_timeout_ms: u64) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions { busy_timeout_ms, ..SqliteOptions::default() }).unwrap()
}

fn event_of(s: &Stream, n: u64, bytes: usize) -> Batch {
    batch(n, vec![append_id(s, &n.to_string(), &"x".repeat(bytes), DAY_MS)])
}

/// Builds an event with an id of its own that takes about half a page.
fn event(s: &Stream, n: u64) -> Batch {
    event_of(s, n, 2000)
}

fn offset(outcomes: &[Outcome]) -> Offset {
    let Outcome::Done(done) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!(!done.appended[0].duplicate, "{outcomes:?}");
    done.appended[0].offset
}

fn is_no_space<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::NoSpace(_)))
}

/// Does housekeeping until nothing is left, or no room for it.
fn maintain_all(store: &SqliteStore) {
    loop {
        match store.maintain(16) {
            Ok(done) if done.more => {}
            Ok(_) | Err(StoreError::NoSpace(_)) => return,
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_commit_that_found_no_room_left_nothing_and_goes_through_when_there_is_some() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let s = stream("full", 0);
    let store = open_small(&path);
    let mut next = 0;
    while store.commit(&[event(&s, next)]).is_ok() {
        next += 1;
    }
    assert!(next > 50, "{next}");
    for _ in 0..3 {
        // The event alone, and with others in the same commit: none of them is there afterwards.
        assert!(is_no_space(&store.commit(&[event(&s, next)])));
        assert!(is_no_space(&store.commit(&[batch(next, vec![append(&s, "small")]), event(&s, next)])));
    }
    assert_eq!(store.poisoned(), None);
    assert_eq!(store.read(&s, Offset(1), WHOLE).unwrap().events.len() as u64, next);
    let other = open(&path, 1000);
    assert_eq!(other.poisoned(), None);
    assert_eq!(other.read(&s, Offset(1), WHOLE).unwrap().events.len() as u64, next);

    // Deleting old events makes room, and the store still accepts that.
    store.commit(&[batch(next, vec![trim(&s, next)])]).unwrap();
    maintain_all(&store);
    assert_eq!(
        offset(&store.commit(&[event(&s, next)]).unwrap()),
        Offset(next + 1),
        "no offset and no id is lost"
    );
    assert_eq!(other.read(&s, Offset(next + 1), WHOLE).unwrap().events.len(), 1);
    let Outcome::Done(again) = &other.commit(&[event(&s, next)]).unwrap()[0] else { panic!() };
    assert!(again.appended[0].duplicate);
}

/// The handle resumes everything that was under way when the room ran out (events, folding, deleting, forgetting a
/// topic): nothing in its memory refers to work that was rolled back.
#[test]
fn a_handle_that_ran_out_of_room_again_and_again_keeps_its_books() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open_small(&path);
    let (s, t) = (stream("kept", 0), stream("dropped", 0));
    let (mut next, mut start) = (0, 0);
    for round in 0..6 {
        // Filled completely: when there is no room for a large event, a small one may still fit.
        let mut bytes = 2000;
        while bytes > 0 {
            match store.commit(&[event_of(&s, next, bytes)]) {
                Ok(outcomes) => assert_eq!(offset(&outcomes), Offset(next + 1)),
                Err(StoreError::NoSpace(_)) => {
                    bytes /= 10;
                    continue;
                }
                Err(other) => panic!("{other}"),
            }
            next += 1;
            if next % 7 == 0 {
                let small = store.commit(&[batch(next, vec![append(&t, "x")])]);
                assert!(small.is_ok() || is_no_space(&small), "{small:?}");
            }
        }
        maintain_all(&store);
        start = next - 5;
        store.commit(&[batch(next, vec![trim(&s, start + 1), drop_topic("dropped")])]).unwrap();
        maintain_all(&store);
        let page = store.read(&s, Offset(1), WHOLE).unwrap();
        assert_eq!((page.events.len() as u64, page.damaged), (next - start, vec![]), "round {round}");
    }
    let repeated = store.commit(&[event(&s, next - 1)]).unwrap();
    assert!(matches!(&repeated[0], Outcome::Done(done) if done.appended[0].duplicate), "{repeated:?}");
    drop(store);
    let examined = Doctor::open(&path).unwrap().examine();
    assert!(examined.findings.list().is_empty(), "{:#?}", examined.findings.list());
    let again = open(&path, 1000);
    assert_eq!(again.read(&s, Offset(1), WHOLE).unwrap().events.len() as u64, next - start);
}

#[test]
fn a_strangers_lock_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let s = stream("locked", 0);
    let store = open(&path, 20);
    store.commit(&[event(&s, 0)]).unwrap();
    let stranger = rusqlite::Connection::open(&path).unwrap();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    for _ in 0..2 {
        let refused = store.commit(&[event(&s, 1)]);
        assert!(matches!(refused, Err(StoreError::Busy(_))), "{refused:?}");
    }
    assert_eq!(store.poisoned(), None);
    assert_eq!(store.read(&s, Offset(1), WHOLE).unwrap().events.len(), 1, "readers do not wait");
    let refused = SqliteStore::open(&path, SqliteOptions { busy_timeout_ms: 20, ..SqliteOptions::default() });
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("locked by another program"), "{text}");
    stranger.execute_batch("ROLLBACK").unwrap();
    assert_eq!(offset(&store.commit(&[event(&s, 1)]).unwrap()), Offset(2));
}

#[test]
fn a_commit_that_waits_says_what_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let s = stream("slow", 0);
    let (store, other) = (open(&path, 60_000), open(&path, 60_000));
    assert_eq!(store.waits_for(), None);
    let waits_for = |store: &SqliteStore, what: &str| {
        while !store.waits_for().is_some_and(|text| text.contains(what)) {
            std::thread::yield_now();
        }
    };
    let stranger = rusqlite::Connection::open(&path).unwrap();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| store.commit(&[event(&s, 0)]).unwrap());
        waits_for(&store, "a lock on the store file");
        scope.spawn(|| other.commit(&[event(&s, 1)]).unwrap());
        waits_for(&other, "its turn to write");
        stranger.execute_batch("ROLLBACK").unwrap();
    });
    assert_eq!((store.waits_for(), other.waits_for()), (None, None));
    let signed = std::fs::read_to_string(folder.path().join("store.db-locks/writer")).unwrap();
    assert_eq!(signed, format!("{:<15}\n", std::process::id()));
}

#[test]
fn the_room_on_the_disk_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let options = SqliteOptions { disk_free_bytes_min: u64::MAX, ..SqliteOptions::default() };
    let store = SqliteStore::open(&path, options).unwrap();
    store.commit(&[event(&stream("t", 0), 0)]).unwrap();
    let disk_use = store.disk_use().unwrap();
    assert!(disk_use.store_bytes > 0 && disk_use.wal_bytes > 2000 && disk_use.free_bytes > 0, "{disk_use:?}");
    assert!(disk_use.low().is_some_and(|reason| reason.contains("bytes free")));
    let plenty = millrace_store::DiskUse { free_bytes_min: 0, ..disk_use };
    assert_eq!(plenty.low(), None);
}
