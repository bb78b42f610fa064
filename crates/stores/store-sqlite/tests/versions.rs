//! Schema versions: stores of every older version keep all their data, and no process writes to a version it does not
//! know.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use millrace_conformance::build::{DAY_MS, append, append_id, batch, stream};
use millrace_model::{Offset, Outcome, Partition, Space, Stream, TopicKey};
use millrace_store::{KeyRange, ReadLimit, Store, StoreError, each_row};
use millrace_store_sqlite::{Doctor, SqliteOptions, SqliteStore};
use rusqlite::Connection;

const NEWEST: i64 = 6;
const WHOLE: ReadLimit = ReadLimit { events_max: 10_000, bytes_max: usize::MAX };
const FIXTURES: [&str; 5] = [
    include_str!("fixtures/v1.sql"),
    include_str!("fixtures/v2.sql"),
    include_str!("fixtures/v3.sql"),
    include_str!("fixtures/v4.sql"),
    include_str!("fixtures/v5.sql"),
];

fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path, SqliteOptions::default())
}

fn set_version(path: &Path, version: i64) {
    Connection::open(path).unwrap().pragma_update(None, "user_version", version).unwrap();
}

/// Offset, time, id as text or hex, key, payload.
type Event = (u64, u64, String, Option<String>, String);

/// The content of the rows, read without any code of the store.
struct Rows {
    version: i64,
    events: BTreeMap<(String, u32), Vec<Event>>,
    small: BTreeMap<&'static str, BTreeMap<String, Vec<u8>>>,
}

fn rows(path: &Path) -> Rows {
    let conn = Connection::open(path).unwrap();
    let version = conn.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    let mut events = BTreeMap::<_, Vec<_>>::new();
    let sql = "SELECT topic, partition, offset, ts, iif(typeof(events.id) = 'blob', lower(hex(events.id)), events.id), events.key, \
               CAST(payload AS TEXT) FROM events JOIN streams ON streams.id = events.stream \
               WHERE NOT dropped AND offset >= start ORDER BY topic, partition, offset";
    let mut select = conn.prepare(sql).unwrap();
    let mut found = select.query([]).unwrap();
    while let Some(row) = found.next().unwrap() {
        let event = (
            row.get::<_, i64>(2).unwrap() as u64,
            row.get::<_, i64>(3).unwrap() as u64,
            row.get(4).unwrap(),
            row.get(5).unwrap(),
            row.get(6).unwrap(),
        );
        events.entry((row.get(0).unwrap(), row.get(1).unwrap())).or_default().push(event);
    }
    let mut small = BTreeMap::new();
    for space in Space::ALL {
        let select = conn.prepare(&format!("SELECT key, value FROM {}", space.as_str()));
        // A version may not have this table yet.
        let Ok(mut select) = select else { continue };
        let found = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        small.insert(space.as_str(), found.map(Result::unwrap).collect());
    }
    Rows { version, events, small }
}

#[test]
fn a_store_of_every_version_keeps_everything() {
    for (at, sql) in FIXTURES.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let before = rows(&path);
        assert_eq!(before.version, at as i64 + 1);
        assert!(!before.events.is_empty() && before.small["groups"].len() >= 3, "version {}", before.version);
        let store = open(&path).unwrap();
        compare(&store, &before);
        go_on(&store, &before);
        drop(store);
        assert_eq!(rows(&path).version, NEWEST);
        let examined = Doctor::open(&path).unwrap().examine();
        assert!(examined.findings.is_healthy(), "version {}: {:?}", before.version, examined.findings.list());
        // Compared again with what this build wrote.
        compare(&open(&path).unwrap(), &Rows { small: BTreeMap::new(), ..before });
    }
}

fn as_stream((topic, partition): &(String, u32)) -> Stream {
    TopicKey::parse(topic).unwrap().stream(Partition(*partition))
}

fn compare(store: &SqliteStore, before: &Rows) {
    let version = before.version;
    for (place, events) in &before.events {
        let page = store.read(&as_stream(place), Offset(0), WHOLE).unwrap();
        assert_eq!(page.damaged, []);
        let found = page.events.iter().take(events.len()).map(|event| {
            let id = event.id.to_string();
            let is_uuid = id.len() == 36 && id.matches('-').count() == 4;
            let id = if is_uuid { id.replace('-', "") } else { id };
            let key = event.body.key.as_ref().map(ToString::to_string);
            (event.offset.0, event.ts.0, id, key, event.body.payload.as_str().to_owned())
        });
        assert_eq!(&found.collect::<Vec<_>>(), events, "version {version}: {place:?}");
    }
    for space in Space::ALL {
        let Some(expected) = before.small.get(space.as_str()) else { continue };
        let mut found = BTreeMap::new();
        each_row(store, space, KeyRange::all(), |row| {
            drop(found.insert(row.key.clone(), row.value.to_vec()));
        })
        .unwrap();
        assert_eq!(&found, expected, "version {version}: table {}", space.as_str());
    }
}

/// Offsets continue where they were, and an id that was brought stays taken.
fn go_on(store: &SqliteStore, before: &Rows) {
    let (place, events) = before.events.iter().find(|((topic, _), _)| topic == "default/orders").unwrap();
    let (stream, last) = (as_stream(place), events.last().unwrap());
    let id = &events.iter().find(|(_, _, id, _, _)| id.starts_with("order-")).unwrap().2;
    let ops = vec![append_id(&stream, id, "again", DAY_MS), append(&stream, "new")];
    let outcome = store.commit(&[batch(last.1, ops)]).unwrap();
    let Outcome::Done(done) = &outcome[0] else { panic!("{outcome:?}") };
    assert!(done.appended[0].duplicate, "version {}", before.version);
    assert_eq!(done.appended[1].offset, Offset(last.0 + 1));
}

#[test]
fn a_store_is_migrated_only_by_a_process_that_is_alone_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    Connection::open(&path).unwrap().execute_batch(FIXTURES[3]).unwrap();
    // A Millrace that writes an older schema has the store open: every version locks the file, and this lock file.
    let file = File::open(&path).unwrap();
    file.lock_shared().unwrap();
    std::fs::create_dir(folder.path().join("store.db-locks")).unwrap();
    std::fs::set_permissions(
        folder.path().join("store.db-locks"),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .unwrap();
    let held = File::create(folder.path().join("store.db-locks/open")).unwrap();
    held.lock_shared().unwrap();
    let refused = open(&path).unwrap_err().to_string();
    for part in ["schema version 4", "writes 6", "another process", "stop every process"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert_eq!(rows(&path).version, 4);
    drop((file, held));
    let store = open(&path).unwrap();
    assert_eq!(rows(&path).version, NEWEST);
    // A store of this version is shared as usual.
    let second = open(&path).unwrap();
    second.commit(&[batch(1, vec![append(&stream("t", 0), "x")])]).unwrap();
    drop((store, second));
}

#[test]
fn many_that_open_an_old_store_at_once_all_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    Connection::open(&path).unwrap().execute_batch(FIXTURES[0]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| open(&path).unwrap());
        }
    });
    assert_eq!(rows(&path).version, NEWEST);
}

#[test]
fn a_handle_writes_nothing_to_a_version_it_does_not_know() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let s = stream("t", 0);
    let (store, other) = (open(&path).unwrap(), open(&path).unwrap());
    store.commit(&[batch(1, vec![append(&s, "x")])]).unwrap();
    set_version(&path, NEWEST + 1);
    for _ in 0..2 {
        let refused = store.commit(&[batch(2, vec![append(&s, "y")])]).unwrap_err();
        assert_eq!(refused, StoreError::Outdated { found: 7, known: 6 });
        assert!(refused.to_string().contains("Nothing was written; restart"), "{refused}");
        assert!(refused.wrote_nothing() && !refused.may_be_retried(), "a retry would meet the same version");
    }
    assert!(store.maintain(100).is_ok_and(|done| !done.more) || store.maintain(100).is_err());
    let wal = std::fs::metadata(folder.path().join("store.db-wal")).unwrap().len();
    store.commit(&[batch(2, vec![append(&s, "y")])]).unwrap_err();
    assert_eq!(std::fs::metadata(folder.path().join("store.db-wal")).unwrap().len(), wal);
    assert_eq!(store.read(&s, Offset(1), WHOLE).unwrap().events.len(), 1);
    // The newer process is not stopped by the older one.
    set_version(&path, NEWEST);
    assert_eq!((store.poisoned(), other.poisoned()), (None, None));
    other.commit(&[batch(3, vec![append(&s, "z")])]).unwrap();
}
