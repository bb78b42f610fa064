//! Claims in a real file: several handles, damage, and rows that no version of Millrace writes.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Barrier;

use millrace_conformance::build::{ack, append, append_priority, batch, claim_of, drop_topic, stream, trim};
use millrace_model::{Ending, FinishedRow, Offset, Op, Outcome, Space};
use millrace_store::{KeyRange, Store};
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

fn open(path: &Path) -> SqliteStore {
    let small = SqliteOptions { fold_events: 16, loc_events_max: 6, ..SqliteOptions::default() };
    SqliteStore::open(path, small).unwrap()
}

fn claim(store: &SqliteStore, now: u64, name: &str, events_max: usize, until: u64) -> Vec<u64> {
    let outcomes =
        store.commit(&[batch(now, vec![Op::Claim(claim_of(name, "h", events_max, until))])]).unwrap();
    let Outcome::Done(done) = &outcomes[0] else { panic!("{outcomes:?}") };
    done.claimed.iter().map(|one| one.ticket.offset.0).collect()
}

#[test]
fn handles_that_race_never_share_an_event() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let s = stream("race", 0);
    let handles = [open(&path), open(&path), open(&path)];
    let barrier = Barrier::new(handles.len());
    let taken: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let workers: Vec<_> = handles
            .iter()
            .enumerate()
            .map(|(of, store)| {
                let (s, barrier) = (&s, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let mut mine = Vec::new();
                    for n in 0..60u64 {
                        let priority = if n % 5 == 0 { 500 } else { 100 };
                        store
                            .commit(&[batch(n, vec![append_priority(s, &format!("{of}-{n}"), priority)])])
                            .unwrap();
                        mine.extend(claim(store, 100, "race", 2, 10_000));
                    }
                    mine
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let mut all: Vec<u64> = taken.into_iter().flatten().collect();
    loop {
        let rest = claim(&handles[0], 100, "race", 50, 10_000);
        if rest.is_empty() {
            break;
        }
        all.extend(rest);
    }
    assert_eq!(all.len(), 180);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), (1..=180).collect());
}

#[test]
fn an_ack_of_a_lease_that_another_handle_took_over_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let (one, other) = (open(&path), open(&path));
    one.commit(&[batch(1, vec![append(&stream("taken", 0), "e")])]).unwrap();
    let outcomes = one.commit(&[batch(2, vec![Op::Claim(claim_of("taken", "h", 1, 10))])]).unwrap();
    let Outcome::Done(done) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(claim(&other, 9, "taken", 1, 99), [] as [u64; 0]);
    assert_eq!(claim(&other, 10, "taken", 1, 99), [1]);
    assert!(matches!(one.commit(&[ack(11, &done.claimed[0].ticket)]).unwrap()[0], Outcome::Refused(_)));
}

fn meddle(path: &Path, sql: &str) {
    let conn = rusqlite::Connection::open(path).unwrap();
    assert!(conn.execute(sql, []).unwrap() > 0, "{sql}");
}

fn endings(store: &SqliteStore) -> Vec<Ending> {
    let rows = store.scan(Space::Finished, &KeyRange::all(), 100).unwrap();
    rows.iter().map(|row| FinishedRow::decode(&row.key, &row.value).unwrap().ending).collect()
}

#[test]
fn a_damaged_event_is_lost_to_the_handler_and_stops_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let s = stream("hurt", 0);
    let store = open(&path);
    store.commit(&[batch(1, (0..6).map(|n| append_priority(&s, "e", 100 + n % 2)).collect())]).unwrap();
    assert_eq!(claim(&store, 2, "hurt", 2, 50), [2, 4], "the urgent come first");
    drop(store);
    // An event that is claimed, one ahead in the plain lane, and one ahead in another lane.
    for offset in [4, 3, 6] {
        meddle(&path, &format!("UPDATE events SET crc = crc + 1 WHERE offset = {offset}"));
    }
    let store = open(&path);
    assert_eq!(claim(&store, 60, "hurt", 9, 90), [2, 1, 5]);
    assert_eq!(endings(&store), [Ending::Lost; 3]);
    while store.maintain(100).unwrap().more {}
    assert_eq!(store.quarantined().unwrap().len(), 3);
    assert_eq!(store.poisoned(), None);
    assert_eq!(claim(&store, 61, "hurt", 9, 99), [] as [u64; 0]);
}

#[test]
fn rows_that_cannot_be_read_strand_or_double_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let s = stream("torn", 0);
    let store = open(&path);
    store.commit(&[batch(1, (0..6).map(|_| append(&s, "e")).collect())]).unwrap();
    assert_eq!(claim(&store, 2, "torn", 2, 50), [1, 2]);
    drop(store);
    meddle(&path, "UPDATE claims SET value = x'00' WHERE key LIKE '%0001'");
    let store = open(&path);
    assert_eq!(claim(&store, 60, "torn", 1, 90), [1], "an unreadable claim comes back");
    drop(store);
    meddle(&path, "UPDATE lanes SET value = x'00'");
    let store = open(&path);
    assert_eq!(
        claim(&store, 61, "torn", 9, 99),
        [2],
        "what is claimed comes back, nothing is handed out twice"
    );
    assert_eq!(store.poisoned(), None);
}

#[test]
fn events_without_a_row_in_their_lane_are_taken_in_the_plain_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let s = stream("older", 0);
    let store = open(&path);
    let ops =
        vec![append(&s, "a"), append_priority(&s, "b", 900), append_priority(&s, "c", 900), append(&s, "d")];
    store.commit(&[batch(1, ops)]).unwrap();
    drop(store);
    // Like a store that was written before there were such rows.
    meddle(&path, "DELETE FROM off_priority WHERE key LIKE '%0002'");
    let store = open(&path);
    assert_eq!(claim(&store, 2, "older", 9, 50), [3, 1, 2, 4]);
}

#[test]
fn rows_about_events_of_a_dropped_topic_leave_those_of_its_successor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let s = stream("twice", 0);
    let store = open(&path);
    let round = |now: u64| {
        store.commit(&[batch(now, (0..20).map(|_| append(&s, "e")).collect())]).unwrap();
        let ops = vec![Op::Claim(claim_of("twice", "h", 99, now + 50))];
        let outcomes = store.commit(&[batch(now + 1, ops)]).unwrap();
        let Outcome::Done(done) = &outcomes[0] else { panic!("{outcomes:?}") };
        let acks: Vec<_> = done.claimed.iter().map(|one| ack(now + 2, &one.ticket)).collect();
        store.commit(&acks).unwrap();
    };
    round(10);
    store.commit(&[batch(20, vec![drop_topic("twice")])]).unwrap();
    round(30);
    while store.maintain(7).unwrap().more {}
    let rows = store.scan(Space::Finished, &KeyRange::all(), 100).unwrap();
    let at = |row: &millrace_store::Row| FinishedRow::decode(&row.key, &row.value).unwrap().at.0;
    assert_eq!(rows.iter().map(at).collect::<Vec<_>>(), [32; 20]);
    store.commit(&[batch(40, vec![trim(&s, 21)])]).unwrap();
    while store.maintain(7).unwrap().more {}
    assert_eq!(store.scan(Space::Finished, &KeyRange::all(), 100).unwrap(), []);
    assert_eq!(store.streams().unwrap()[0].next, Offset(21));
}
