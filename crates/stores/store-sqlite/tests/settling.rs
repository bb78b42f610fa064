//! The copy of a journal answers commits before it writes them to its tables. Nobody may see a difference: commits,
//! reads and settling go on beside each other here, and the records are folded into a second copy for comparison.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use millrace_conformance::build::{
    DAY_MS, absent, append, append_id, batch, checked, delete, drop_topic, equals, put, stream, trim,
};
use millrace_model::{Appended, Batch, Offset, Op, Outcome, Space};
use millrace_store::{
    CommitVia, CopyPosition, FoldRecord, Foldable, KeyRange, Placement, ReadLimit, RecordedChange, Store, Tip,
};
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

const LIMIT: ReadLimit = ReadLimit { events_max: 10_000, bytes_max: 64 << 20 };

/// A copy and the records that it has placed.
struct Leader {
    copy: SqliteStore,
    records: Vec<FoldRecord>,
}

fn options() -> SqliteOptions {
    // Settled only when somebody asks, or at a bound.
    SqliteOptions { is_copy: true, settle_ms: 3_600_000, ..SqliteOptions::default() }
}

fn position(n: u64) -> CopyPosition {
    CopyPosition { store_id: 7, n, tip: Tip([n as u8; 16]) }
}

fn open(path: &Path, options: SqliteOptions) -> SqliteStore {
    let copy = SqliteStore::open(path, options).unwrap();
    if copy.position().unwrap().is_none() {
        copy.set_position(&position(0)).unwrap();
    }
    copy
}

impl Leader {
    fn new(folder: &Path, options: SqliteOptions) -> Leader {
        Leader { copy: open(&folder.join("leader.db"), options), records: Vec::new() }
    }

    fn commit(&mut self, batches: &[Batch]) -> Vec<Outcome> {
        let n = self.records.len() as u64 + 1;
        let mut placed = None;
        let via = self.copy.commit_via(batches, &mut |changes: &[RecordedChange]| {
            placed = Some(FoldRecord { position: position(n), changes: changes.to_vec() });
            Placement::Placed(position(n))
        });
        let CommitVia::Committed { outcomes, copied } = via.unwrap() else { panic!("placed") };
        copied.unwrap();
        self.records.extend(placed);
        outcomes
    }

    fn done(&mut self, ops: Vec<Op>) -> Vec<Appended> {
        match self.commit(&[batch(1, ops)]).remove(0) {
            Outcome::Done(done) => done.appended,
            Outcome::Refused(refusal) => panic!("refused: {refusal:?}"),
        }
    }

    /// Folds all records into a second copy, and compares what both show.
    fn compare(&self, folder: &Path) {
        let other = open(&folder.join("other.db"), options());
        other.apply(&self.records).unwrap();
        let sorted = |store: &SqliteStore| {
            let mut streams = store.streams().unwrap();
            streams.sort_by(|a, b| a.stream.cmp(&b.stream));
            streams
        };
        let streams = sorted(&self.copy);
        assert_eq!(streams, sorted(&other));
        for bounds in streams {
            let read = |store: &SqliteStore| store.read(&bounds.stream, Offset(1), LIMIT).unwrap();
            assert_eq!(read(&self.copy), read(&other), "{}", bounds.stream);
        }
        for space in [Space::Kv, Space::Topics, Space::OffPriority] {
            let rows = |store: &SqliteStore| store.scan(space, &KeyRange::prefix(""), 10_000).unwrap();
            assert_eq!(rows(&self.copy), rows(&other), "{space:?}");
        }
        assert_eq!(self.copy.position().unwrap(), other.position().unwrap());
    }
}

fn is_refused(outcomes: &[Outcome]) -> bool {
    matches!(outcomes, [Outcome::Refused(_)])
}

#[test]
fn a_commit_sees_the_ones_before_it_that_are_in_no_table() {
    let folder = tempfile::tempdir().unwrap();
    let mut leader = Leader::new(folder.path(), options());
    let (a, b) = (stream("a", 0), stream("b", 0));
    assert_eq!(leader.done(vec![append(&a, "1"), append_id(&a, "x", "2", DAY_MS)])[1].offset, Offset(2));
    assert_eq!(leader.done(vec![append(&b, "1")])[0].offset, Offset(1));
    assert_eq!(leader.done(vec![append(&a, "3")])[0].offset, Offset(3));
    let again = leader.done(vec![append_id(&a, "x", "other", DAY_MS)]);
    assert!(again[0].duplicate && again[0].offset == Offset(2), "{again:?}");

    leader.done(vec![put(Space::Kv, "k", "v")]);
    assert!(is_refused(&leader.commit(&[checked(1, vec![absent(Space::Kv, "k")], vec![])])));
    assert!(!is_refused(&leader.commit(&[checked(1, vec![equals(Space::Kv, "k", "v")], vec![])])));
    leader.done(vec![delete(Space::Kv, "k")]);
    assert!(!is_refused(&leader.commit(&[checked(1, vec![absent(Space::Kv, "k")], vec![])])));
    leader.compare(folder.path());
}

#[test]
fn a_commit_that_needs_the_tables_finds_everything_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut leader = Leader::new(folder.path(), options());
    let a = stream("a", 0);
    leader.done((1..=5).map(|at| append(&a, &at.to_string())).collect());
    leader.done(vec![trim(&a, 4)]);
    leader.done(vec![append(&a, "6")]);
    assert_eq!(leader.copy.read(&a, Offset(1), LIMIT).unwrap().events.len(), 3);
    leader.done(vec![drop_topic("a")]);
    assert_eq!(leader.done(vec![append(&a, "new")])[0].offset, Offset(1));
    leader.compare(folder.path());
}

/// A stream that gets into the tables while the next commit chooses a number must not share its number.
#[test]
fn new_streams_and_ids_stay_apart_while_others_settle() {
    let folder = tempfile::tempdir().unwrap();
    let mut leader = Leader::new(folder.path(), SqliteOptions { settle_ms: 0, ..options() });
    let streams: Vec<_> = (0..600).map(|at| stream(&format!("t{at}"), 0)).collect();
    // The settling thread works all the time, because every commit is due at once.
    for (at, name) in streams.iter().enumerate() {
        let id = format!("id{at}");
        assert!(!leader.done(vec![append_id(name, &id, "first", DAY_MS)])[0].duplicate);
        if at % 7 == 0 {
            leader.copy.settle().unwrap();
        }
        for back in [0, 1, 3, 10] {
            let Some(earlier) = at.checked_sub(back) else { continue };
            let again =
                leader.done(vec![append_id(&streams[earlier], &format!("id{earlier}"), "again", DAY_MS)]);
            assert!(again[0].duplicate && again[0].offset == Offset(1), "{at} {earlier}: {again:?}");
        }
    }
    leader.compare(folder.path());
}

/// Readers beside commits see every commit that was answered before they began.
#[test]
fn a_reader_sees_what_was_answered() {
    let folder = tempfile::tempdir().unwrap();
    let mut leader = Leader::new(folder.path(), SqliteOptions { settle_ms: 1, ..options() });
    let a = stream("a", 0);
    let answered = std::sync::atomic::AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let Leader { copy, records } = &mut leader;
    let copy = &*copy;
    thread::scope(|scope| {
        let reader = || {
            while !is_over.load(SeqCst) {
                let before = answered.load(SeqCst);
                let page = copy.read(&a, Offset(1), LIMIT).unwrap();
                assert!(page.events.len() as u64 >= before, "{} of {before}", page.events.len());
                let rows = copy.scan(Space::Kv, &KeyRange::prefix(""), 10).unwrap();
                let shown = rows
                    .first()
                    .map_or(0, |row| std::str::from_utf8(&row.value).unwrap().parse::<u64>().unwrap());
                assert!(shown >= before, "{shown} of {before}");
            }
        };
        scope.spawn(reader);
        scope.spawn(reader);
        for n in 1..=1_500 {
            let ops = vec![append(&a, "x"), put(Space::Kv, "n", &n.to_string())];
            let via = copy.commit_via(&[batch(1, ops)], &mut |changes: &[RecordedChange]| {
                records.push(FoldRecord { position: position(n), changes: changes.to_vec() });
                Placement::Placed(position(n))
            });
            assert!(matches!(via, Ok(CommitVia::Committed { copied: Ok(()), .. })), "{via:?}");
            answered.store(n, SeqCst);
        }
        is_over.store(true, SeqCst);
    });
    leader.compare(folder.path());
}

#[test]
fn nothing_is_kept_of_a_commit_that_was_not_placed() {
    let folder = tempfile::tempdir().unwrap();
    let mut leader = Leader::new(folder.path(), options());
    let a = stream("a", 0);
    leader.done(vec![append(&a, "1")]);
    let ops = vec![append_id(&a, "x", "lost", DAY_MS), put(Space::Kv, "k", "lost")];
    let via = leader.copy.commit_via(&[batch(1, ops)], &mut |_: &[RecordedChange]| Placement::NotPlaced);
    assert!(matches!(via, Ok(CommitVia::NotPlaced)), "{via:?}");
    let kept = leader.done(vec![append_id(&a, "x", "kept", DAY_MS)]);
    assert!(!kept[0].duplicate && kept[0].offset == Offset(2), "{kept:?}");
    leader.compare(folder.path());
}

/// Ids that wait to be settled push out ids in the tables, as they would if they were there.
#[test]
fn the_bound_of_remembered_ids_counts_both_places() {
    let folder = tempfile::tempdir().unwrap();
    let mut leader = Leader::new(folder.path(), SqliteOptions { dedupe_ids_max: 3, ..options() });
    let a = stream("a", 0);
    let bring = |leader: &mut Leader, id: &str| leader.done(vec![append_id(&a, id, "", DAY_MS)])[0].duplicate;
    for id in ["1", "2", "3"] {
        assert!(!bring(&mut leader, id));
    }
    leader.copy.settle().unwrap();
    assert!(bring(&mut leader, "1"));
    assert!(!bring(&mut leader, "4"), "pushes out 1");
    assert!(bring(&mut leader, "2"));
    assert!(!bring(&mut leader, "1"), "forgotten, and pushes out 2");
    assert!(!bring(&mut leader, "2"));
    assert!(bring(&mut leader, "4"));
}

/// Small rows and deletions count against the bounds, too: a commit that finds too much waits for the tables.
#[test]
fn what_waits_is_bounded() {
    for op in [put(Space::Kv, "k", ""), delete(Space::Kv, "k")] {
        let folder = tempfile::tempdir().unwrap();
        let mut leader =
            Leader::new(folder.path(), SqliteOptions { unsettled_bytes_max: 2_000, ..options() });
        leader.done(vec![put(Space::Kv, "k", "")]);
        for _ in 0..200 {
            leader.done(vec![put(Space::Kv, "k", ""), op.clone()]);
        }
        let file = settled_position(&folder.path().join("leader.db"));
        assert!(file >= 180, "{file} of 201 records are in the tables");
    }
}

/// After housekeeping has come to its end, what was committed before brings no more of it.
#[test]
fn housekeeping_includes_what_waits() {
    let folder = tempfile::tempdir().unwrap();
    let mut leader = Leader::new(folder.path(), options());
    leader.done(vec![append(&stream("a", 0), "1")]);
    while leader.copy.maintain(1).unwrap().more {}
    assert_eq!(settled_position(&folder.path().join("leader.db")), 1);
    leader.copy.settle().unwrap();
    assert_eq!(leader.copy.maintain(1).unwrap().rows, 0);
}

/// An orderly end leaves a complete file.
#[test]
fn the_end_of_a_handle_settles() {
    let folder = tempfile::tempdir().unwrap();
    let mut leader = Leader::new(folder.path(), options());
    leader.done(vec![append(&stream("a", 0), "1")]);
    assert_eq!(settled_position(&folder.path().join("leader.db")), 0);
    let Leader { copy, .. } = leader;
    drop(copy);
    assert_eq!(settled_position(&folder.path().join("leader.db")), 1);
}

/// Reads how far the file has followed the journal, without asking the handle to settle.
fn settled_position(path: &Path) -> u64 {
    let conn = rusqlite::Connection::open(path).unwrap();
    let bytes: Vec<u8> =
        conn.query_row("SELECT value FROM meta WHERE key = 'journal'", [], |row| row.get(0)).unwrap();
    // The store's id comes first (`docs/formats/store-sqlite.md`).
    u64::from_le_bytes(bytes[16..24].try_into().unwrap())
}
