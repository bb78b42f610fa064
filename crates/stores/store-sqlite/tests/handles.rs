//! Several handles on one file: offsets stay dense, and each handle sees the commits of the others.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Barrier;

use millrace_conformance::build::{
    DAY_MS, append, append_id, batch, checked, drop_topic, equals, put, stream, trim,
};
use millrace_model::{Offset, Outcome};
use millrace_store::{CommitNumber, ReadLimit, Store};
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

const WHOLE: ReadLimit = ReadLimit { events_max: 100_000, bytes_max: usize::MAX };

fn open(path: &Path) -> SqliteStore {
    let small =
        SqliteOptions { fold_events: 16, loc_events_max: 6, commits_kept: 4, ..SqliteOptions::default() };
    SqliteStore::open(path, small).unwrap()
}

fn payloads(store: &SqliteStore, s: &millrace_model::Stream) -> Vec<String> {
    let page = store.read(s, Offset(0), WHOLE).unwrap();
    assert_eq!(page.damaged, []);
    page.events.iter().map(|event| event.body.payload.as_str().to_owned()).collect()
}

fn maintain_all(store: &SqliteStore) {
    while store.maintain(7).unwrap().more {}
}

#[test]
fn two_handles_that_take_turns_see_dense_offsets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let handles = [open(&path), open(&path)];
    let s = stream("turns", 0);
    for n in 0..200u64 {
        let writer = &handles[(n * 7 % 5 % 2) as usize];
        let outcome = writer.commit(&[batch(n, vec![append(&s, &n.to_string())])]).unwrap();
        let Outcome::Done(done) = &outcome[0] else { panic!("{outcome:?}") };
        assert_eq!(done.appended[0].offset, Offset(n + 1));
        match n % 9 {
            2 => maintain_all(&handles[0]),
            5 => maintain_all(&handles[1]),
            _ => {}
        }
        assert_eq!(handles[(n % 2) as usize].read(&s, Offset(n + 1), WHOLE).unwrap().events.len(), 1);
    }
    let expected: Vec<String> = (0..200).map(|n| format!("\"{n}\"")).collect();
    for handle in &handles {
        assert_eq!(payloads(handle, &s), expected);
        let bounds = handle.streams().unwrap();
        assert_eq!(
            (bounds[0].next, bounds[0].bytes),
            (Offset(201), expected.iter().map(|p| p.len() as u64).sum())
        );
    }
}

#[test]
fn handles_that_write_at_once_lose_nothing() {
    const EACH: usize = 150;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let s = stream("race", 0);
    let barrier = Barrier::new(3);
    std::thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            let (path, s, barrier) = (&path, &s, &barrier);
            scope.spawn(move || {
                let store = open(path);
                barrier.wait();
                for n in 0..EACH {
                    store.commit(&[batch(n as u64, vec![append(s, &format!("{name}{n}"))])]).unwrap();
                    store.maintain(3).unwrap();
                }
            });
        }
    });
    let found = payloads(&open(&path), &s);
    assert_eq!(found.len(), 3 * EACH);
    for name in ["a", "b", "c"] {
        let own: Vec<&String> = found.iter().filter(|text| text[1..].starts_with(name)).collect();
        assert_eq!(
            own,
            (0..EACH).map(|n| format!("\"{name}{n}\"")).collect::<Vec<_>>().iter().collect::<Vec<_>>()
        );
    }
}

#[test]
fn trims_drops_ids_and_checks_reach_the_other_handle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let (one, other) = (open(&path), open(&path));
    let (s, t) = (stream("shared", 0), stream("dropped", 0));
    let bring = |now| batch(now, vec![append_id(&s, "the id", "x", DAY_MS)]);
    for n in 0..10 {
        one.commit(&[batch(n, vec![append(&s, "x"), append(&t, "x")])]).unwrap();
    }
    one.commit(&[bring(10), batch(10, vec![put(millrace_model::Space::Kv, "k", "1")])]).unwrap();
    let Outcome::Done(again) = &other.commit(&[bring(20)]).unwrap()[0] else { panic!() };
    assert!(again.appended[0].duplicate);
    let claim = checked(20, vec![equals(millrace_model::Space::Kv, "k", "2")], vec![]);
    assert!(matches!(other.commit(&[claim]).unwrap()[0], Outcome::Refused(_)));

    one.commit(&[batch(21, vec![trim(&s, 9), drop_topic("dropped")])]).unwrap();
    maintain_all(&one);
    let page = other.read(&s, Offset(1), WHOLE).unwrap();
    assert_eq!((page.events.len(), page.events[0].offset, page.damaged), (3, Offset(9), vec![]));
    assert!(payloads(&other, &t).is_empty());
    let Outcome::Done(fresh) = &other.commit(&[batch(22, vec![append(&t, "new")])]).unwrap()[0] else {
        panic!()
    };
    assert_eq!(fresh.appended[0].offset, Offset::FIRST);
    assert_eq!(payloads(&one, &t), ["\"new\""]);
}

#[test]
fn a_handle_that_slept_through_pruned_commits_loads_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let (awake, asleep) = (open(&path), open(&path));
    let s = stream("slept", 0);
    for n in 0..100 {
        awake.commit(&[batch(n, vec![append_id(&s, &n.to_string(), "x", DAY_MS)])]).unwrap();
        maintain_all(&awake);
    }
    assert!(!asleep.watch(CommitNumber(0), 10).unwrap().complete, "commits were pruned");
    assert_eq!(payloads(&asleep, &s).len(), 100);
    let repeated = batch(100, vec![append_id(&s, "3", "x", DAY_MS), append(&s, "x")]);
    let Outcome::Done(done) = &asleep.commit(&[repeated]).unwrap()[0] else { panic!() };
    assert!(done.appended[0].duplicate);
    assert_eq!((done.appended[0].offset, done.appended[1].offset), (Offset(4), Offset(101)));
    let news = awake.watch(awake.watch(CommitNumber(u64::MAX), 1).unwrap().last, 10).unwrap();
    assert!(news.complete && news.runs.is_empty());
}
