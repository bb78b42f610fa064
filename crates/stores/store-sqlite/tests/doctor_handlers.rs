//! The examination of the rows of handlers and state: nothing for a healthy store, and each contradiction named.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use millrace_conformance::build::{ack, append_priority, batch, claim_of, release, remove, stream, trim};
use millrace_model::{Identity, Intent, JsonText, Namespace, Op, Outcome, Reconcile};
use millrace_store::Store;
use millrace_store_sqlite::{Doctor, Existing, SqliteOptions, SqliteStore, backup};

fn state(fields: &str) -> Op {
    let identity = Identity::Entity { type_name: "User".into(), key: "u/1".into() };
    let fields = Some(JsonText::from_stored(Bytes::copy_from_slice(fields.as_bytes())));
    let intents = vec![Intent { identity, fields, schema: 1 }];
    let namespace = Namespace::new("suite").unwrap();
    Op::Reconcile(Reconcile { namespace, meta: BTreeMap::new(), intents, events: vec![] })
}

fn filled(folder: &Path) -> PathBuf {
    let path = folder.join("store.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let s = stream("h", 0);
    for n in 1..=12 {
        let priority = if n % 3 == 0 { 500 } else { 100 };
        store
            .commit(&[batch(n, vec![append_priority(&s, "e", priority), state(&format!("{{\"n\":{n}}}"))])])
            .unwrap();
    }
    let outcomes = store.commit(&[batch(20, vec![Op::Claim(claim_of("h", "f", 6, 50))])]).unwrap();
    let Outcome::Done(done) = &outcomes[0] else { panic!("{outcomes:?}") };
    store.commit(&[ack(21, &done.claimed[0].ticket), release(21, &done.claimed[1].ticket, 99)]).unwrap();
    store.commit(&[batch(22, vec![trim(&s, 2), remove(&s, &[5], 6)])]).unwrap();
    path
}

fn found(path: &Path) -> Vec<String> {
    let examined = Doctor::open(path).unwrap().examine();
    examined.findings.list().iter().map(|one| format!("{}: {}", one.place, one.what)).collect()
}

fn meddle(path: &Path, sql: &str) {
    let conn = rusqlite::Connection::open(path).unwrap();
    assert!(conn.execute(sql, []).unwrap() > 0, "{sql}");
}

#[test]
fn a_healthy_store_and_its_backup_have_only_a_lost_claim_to_tell() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(folder.path());
    let copy = folder.path().join("copy.db");
    backup(&path, &copy, Existing::Keep).unwrap();
    for path in [&path, &copy] {
        let found = found(path);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].contains("claims an event that is not retained"), "{found:?}");
        assert!(Doctor::open(path).unwrap().examine().findings.is_healthy(), "a note, no problem");
    }
    // The copy continues where the store was.
    let store = SqliteStore::open(&copy, SqliteOptions::default()).unwrap();
    let outcomes =
        store.commit(&[batch(60, vec![Op::Claim(claim_of("h", "f", 99, 90)), state("{\"n\":13}")])]).unwrap();
    let Outcome::Done(done) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(done.state.map(|commit| commit.0), Some(13));
    let offsets: Vec<u64> = done.claimed.iter().map(|one| one.ticket.offset.0).collect();
    assert_eq!(offsets, [9, 12, 2, 4, 7, 8, 10, 11], "what waits until 99 still waits");
}

#[test]
fn each_contradiction_is_named() {
    for (sql, expected) in [
        ("UPDATE claims SET crc = NULL, value = x'00'", "cannot be read"),
        (
            "UPDATE claims SET crc = NULL, key = 'x' WHERE key LIKE '%0063/%'",
            "names no handler, time and event",
        ),
        (
            "UPDATE claims SET crc = NULL, key = replace(key, '0032/', '0033/') WHERE key LIKE '%0032/%'",
            "another time than its own",
        ),
        ("UPDATE lanes SET crc = NULL, value = x'00'", "gets no more of this stream"),
        (
            "UPDATE lanes SET crc = NULL, value = CAST('{\"next\":99}' AS BLOB)",
            "behind the end of its stream at 13",
        ),
        ("UPDATE finished SET crc = NULL, value = x'00'", "cannot be read"),
        ("INSERT INTO sessions (key, value) VALUES ('s', x'00')", "table sessions, row \"s\""),
        (
            "UPDATE off_priority SET crc = NULL, key = substr(key, 1, length(key) - 1) || 'a' WHERE key LIKE '%9'",
            "no event of this priority",
        ),
        ("DELETE FROM off_priority WHERE key LIKE '%9'", "1 events off the plain priority have no row"),
        ("DELETE FROM history", "has no version"),
        (
            "UPDATE heads SET crc = NULL, value = CAST(replace(value, '12', '11') AS BLOB)",
            "is not its newest version",
        ),
        ("UPDATE kv SET crc = NULL, value = x'37'", "says 7, but there is a commit 12"),
        ("UPDATE kv SET crc = NULL, value = x'00'", "is no number"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = filled(folder.path());
        meddle(&path, sql);
        let found = found(&path);
        assert!(found.iter().any(|one| one.contains(expected)), "{sql}: {expected:?} is not in {found:#?}");
    }
}
