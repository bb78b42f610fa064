//! Damage in the file: reported, set aside, and never in the way of other events.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use millrace_conformance::build::{DAY_MS, append, append_id, batch, remove, stream, trim};
use millrace_model::{Batch, Durability, Offset, Op, Outcome, Timestamp};
use millrace_store::{ReadLimit, Retention, Store, StoreError};
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

const WHOLE: ReadLimit = ReadLimit { events_max: 10_000, bytes_max: usize::MAX };

fn filled(folder: &Path, events: u64) -> PathBuf {
    let path = folder.join("store.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    for n in 1..=events {
        store.commit(&[batch(n * 10, vec![append(&stream("damage", 0), &format!("{n:0200}"))])]).unwrap();
    }
    path
}

/// Destroys the head of the page that holds event `n`. The store must be closed.
fn break_page_of(path: &Path, n: u64) {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(conn);
    let mut bytes = std::fs::read(path).unwrap();
    let needle = format!("{n:0200}").into_bytes();
    let hit = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    let page_start = hit / 4096 * 4096;
    bytes[page_start..page_start + 16].fill(0xa5);
    std::fs::write(path, bytes).unwrap();
}

fn meddle(path: &Path, sql: &str) {
    let conn = rusqlite::Connection::open(path).unwrap();
    assert!(conn.execute(sql, []).unwrap() > 0, "{sql}");
}

#[test]
fn each_changed_column_is_noticed() {
    for change in [
        "stream = stream + 1",
        "offset = offset + 1",
        "ts = ts + 1",
        "id = x'00112233445566778899aabbccddeeff'",
        "id = 'text'",
        "id = 7",
        "brought = 1",
        "priority = 7",
        "key = ''",
        "key = 'k'",
        "headers = x'7b7d'",
        "root_event_id = 'r'",
        "chain_depth = 1",
        "chain_depth = -1",
        "causation = 'c'",
        "correlation = 'c'",
        "crc = crc + 1",
        "payload = x'22'",
        "payload = 'text'",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = filled(folder.path(), 5);
        meddle(&path, &format!("UPDATE events SET {change} WHERE offset = 3"));
        let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
        let page = store.read(&stream("damage", 0), Offset(1), WHOLE).unwrap();
        assert_eq!(page.damaged, [Offset(3)], "{change}");
        assert_eq!((page.events.len(), page.through), (4, Offset(5)), "{change}");
    }
}

#[test]
fn damaged_and_missing_rows_are_reported_recorded_and_trimmed_like_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(folder.path(), 30);
    meddle(&path, "UPDATE events SET payload = x'7b7d' WHERE offset = 4");
    meddle(&path, "DELETE FROM events WHERE offset IN (10, 11, 30)");
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let s = stream("damage", 0);
    let page = store.read(&s, Offset(1), WHOLE).unwrap();
    assert_eq!(page.damaged, [4, 10, 11, 30].map(Offset));
    assert_eq!((page.events.len(), page.through), (26, Offset(30)));
    let small = store.read(&s, Offset(10), ReadLimit { events_max: 2, bytes_max: 1 }).unwrap();
    assert_eq!(
        (small.events.len(), small.damaged, small.through),
        (0, vec![Offset(10), Offset(11)], Offset(11))
    );
    assert_eq!(store.seek(&s, Timestamp(100)).unwrap(), Offset(10));
    assert_eq!(store.seek(&s, Timestamp(111)).unwrap(), Offset(12));

    while store.maintain(100).unwrap().more {}
    let recorded = store.quarantined().unwrap();
    assert_eq!(recorded.iter().map(|one| one.offset.0).collect::<Vec<_>>(), [4, 10, 11, 30]);
    assert_eq!(recorded[0].reason, "its checksum does not match");
    assert_eq!(recorded[1].reason, "its row is missing");
    store.read(&s, Offset(1), WHOLE).unwrap();
    assert!(!store.maintain(100).unwrap().more, "what is recorded is not recorded again");

    store.commit(&[batch(999, vec![trim(&s, 12), append(&s, "on")])]).unwrap();
    while store.maintain(5).unwrap().more {}
    let page = store.read(&s, Offset(1), WHOLE).unwrap();
    assert_eq!((page.damaged, page.through, page.events.len()), (vec![Offset(30)], Offset(31), 19));
}

#[test]
fn what_was_removed_is_no_damage_and_damage_among_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(folder.path(), 20);
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let s = stream("damage", 0);
    store.commit(&[batch(999, vec![remove(&s, &[3, 4], 10)])]).unwrap();
    meddle(&path, "UPDATE events SET payload = x'7b7d' WHERE offset = 6");
    meddle(&path, "DELETE FROM events WHERE offset = 15");
    let page = store.read(&s, Offset(1), WHOLE).unwrap();
    assert_eq!(
        (page.damaged, page.events.len(), page.through),
        (vec![Offset(6), Offset(15)], 16, Offset(20))
    );
    while store.maintain(100).unwrap().more {}
    assert_eq!(store.quarantined().unwrap().len(), 2);
}

#[test]
fn a_damaged_page_costs_its_own_events_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(folder.path(), 400);
    break_page_of(&path, 200);

    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let page = store.read(&stream("damage", 0), Offset(1), WHOLE).unwrap();
    assert!(page.damaged.contains(&Offset(200)));
    assert!(page.damaged.len() < 30, "{:?}", page.damaged);
    assert_eq!((page.damaged.len() + page.events.len(), page.through), (400, Offset(400)));
}

/// Returns options under which everything is folded at once, or nothing ever.
fn options(folds: bool) -> SqliteOptions {
    SqliteOptions { fold_events: if folds { 1 } else { u64::MAX }, ..SqliteOptions::default() }
}

/// Skips the sync, which is not needed because no test here cuts the power.
fn unsynced(batch: Batch) -> Batch {
    Batch { durability: Durability::Memory, ..batch }
}

/// Makes a store of 400 events with ids of their own and destroys the page of number 200.
fn with_ids_and_a_broken_page(folder: &Path, folds: bool) -> PathBuf {
    let path = folder.join("store.db");
    let store = SqliteStore::open(&path, options(folds)).unwrap();
    for n in 1..=400_u64 {
        let op = append_id(&stream("damage", 0), &format!("id-{n}"), &format!("{n:0200}"), DAY_MS);
        store.commit(&[unsynced(batch(n * 10, vec![op]))]).unwrap();
    }
    keep_house(&store, 512);
    drop(store);
    break_page_of(&path, 200);
    path
}

/// Does all housekeeping and asserts that it comes to an end.
fn keep_house(store: &SqliteStore, rows_max: usize) {
    let slices = (0..10_000).take_while(|_| store.maintain(rows_max).unwrap().more).count();
    assert!(slices < 10_000, "housekeeping never ends");
}

#[test]
fn an_id_on_a_damaged_page_is_stored_again_and_the_store_goes_on() {
    for folds in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = with_ids_and_a_broken_page(folder.path(), folds);
        let store = SqliteStore::open(&path, options(folds)).unwrap();
        let s = stream("damage", 0);
        let again = |id: &str| {
            let outcomes = store.commit(&[batch(4001, vec![append_id(&s, id, "again", DAY_MS)])]).unwrap();
            let Outcome::Done(done) = &outcomes[0] else { panic!("{outcomes:?}") };
            (done.appended[0].duplicate, done.appended[0].offset.0)
        };
        assert_eq!(again("id-100"), (true, 100), "folds: {folds}");
        assert_eq!(again("id-200"), (false, 401), "folds: {folds}");
        assert_eq!(again("id-200"), (true, 401), "folds: {folds}");
        assert_eq!(again("id-400"), (true, 400), "folds: {folds}");
        assert_eq!(store.poisoned(), None);
        keep_house(&store, 100);
        if folds {
            // Without folding the id was never loaded, because its row could not be read when the store was opened.
            let recorded = store.quarantined().unwrap();
            let found: Vec<_> = recorded.iter().map(|one| (one.offset.0, one.reason.as_str())).collect();
            assert_eq!(found, [(200, "its page is damaged")]);
        }
    }
}

#[test]
fn retention_passes_over_a_damaged_page_and_comes_to_an_end() {
    for (folds, rows_max) in [(true, 7), (true, 512), (false, 7), (false, 512)] {
        let folder = tempfile::tempdir().unwrap();
        let path = with_ids_and_a_broken_page(folder.path(), folds);
        let store = SqliteStore::open(&path, options(folds)).unwrap();
        let s = stream("damage", 0);
        let rule = |older_than, bytes_max| Retention { older_than, bytes_max };
        assert_eq!(store.retention_start(&s, rule(Some(Timestamp(3000)), None)).unwrap(), Offset(300));
        assert!(store.retention_start(&s, rule(None, Some(202 * 250))).unwrap() >= Offset(1));
        store.commit(&[batch(5000, vec![trim(&s, 390)])]).unwrap();
        keep_house(&store, rows_max);
        assert_eq!(store.poisoned(), None);
        let recorded: Vec<_> = store.quarantined().unwrap().iter().map(|one| one.offset.0).collect();
        assert!(recorded.contains(&200) && recorded.len() < 60, "{recorded:?}");
        let page = store.read(&s, Offset(1), WHOLE).unwrap();
        assert_eq!((page.events.len(), page.damaged.len(), page.through), (11, 0, Offset(400)));
        assert_eq!(store.streams().unwrap()[0].start, Offset(390));

        store.commit(&[batch(5001, vec![Op::Drop { topic: s.topic.clone() }])]).unwrap();
        keep_house(&store, rows_max);
        store.commit(&[batch(5002, vec![append(&s, "a new one")])]).unwrap();
        assert_eq!(store.read(&s, Offset(1), WHOLE).unwrap().events.len(), 1);
        drop(store);
        let store = SqliteStore::open(&path, options(folds)).unwrap();
        assert_eq!(store.read(&s, Offset(1), WHOLE).unwrap().events.len(), 1);
    }
}

#[test]
fn retention_survives_damage_in_where_events_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let s = stream("damage", 0);
    let small = SqliteOptions { fold_events: 1, loc_events_max: 10, ..SqliteOptions::default() };
    let store = SqliteStore::open(&path, small.clone()).unwrap();
    for n in 1..=50_u64 {
        store.commit(&[unsynced(batch(n * 10, vec![append(&s, &format!("{n}"))]))]).unwrap();
        keep_house(&store, 512);
    }
    drop(store);
    meddle(
        &path,
        "UPDATE loc SET pieces = x'0000' WHERE first_offset = (SELECT max(first_offset) FROM loc WHERE first_offset < 30)",
    );
    let store = SqliteStore::open(&path, small).unwrap();
    store.commit(&[batch(5000, vec![trim(&s, 45), append(&s, "on")])]).unwrap();
    keep_house(&store, 3);
    assert_eq!(store.poisoned(), None);
    assert_eq!(store.read(&s, Offset(1), WHOLE).unwrap().events.len(), 7);
}

#[test]
fn damaged_bookkeeping_is_told_when_opening() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(folder.path(), 5);
    meddle(&path, "UPDATE commits SET runs = x'0000' WHERE c = 3");
    let Err(StoreError::Unusable(reason)) = SqliteStore::open(&path, SqliteOptions::default()) else {
        panic!()
    };
    assert!(reason.text().ends_with("row 3 of table commits is damaged"), "{reason}");
}
