//! Backups: whole, of one moment, never half written under their name, and restored only when no process reads the
//! store.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use millrace_conformance::build::{append, batch, stream};
use millrace_model::Offset;
use millrace_store::{ReadLimit, Store};
use millrace_store_sqlite::{
    BackupError, Doctor, Existing, Restore, ServeLock, SqliteOptions, SqliteStore, backup,
};

const WHOLE: ReadLimit = ReadLimit { events_max: 10_000, bytes_max: usize::MAX };

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

fn publish(store: &SqliteStore, from: u64, to: u64) {
    for n in from..=to {
        store.commit(&[batch(n, vec![append(&stream("t", 0), &n.to_string())])]).unwrap();
    }
}

fn events(path: &Path) -> usize {
    open(path).read(&stream("t", 0), Offset(1), WHOLE).unwrap().events.len()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with("-shm") && !name.ends_with("-wal") && !name.ends_with("-locks"))
        .collect();
    names.sort();
    names
}

fn paths(folder: &Path) -> (PathBuf, PathBuf) {
    (folder.join("store.db"), folder.join("copy"))
}

#[test]
fn a_copy_of_an_open_store_holds_what_was_committed_and_is_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let (database, copy) = paths(folder.path());
    let store = open(&database);
    publish(&store, 1, 100);
    let copied = backup(&database, &copy, Existing::Keep).unwrap();
    assert_eq!(copied.events, 100);
    assert_eq!(copied.bytes, std::fs::metadata(&copy).unwrap().len());
    publish(&store, 101, 120);
    drop(store);
    assert_eq!(names(folder.path()), ["copy", "store.db"]);
    assert!(Doctor::open(&copy).unwrap().examine().findings.list().is_empty());

    let restore = Restore::prepare(&copy, &database, Existing::Replace).unwrap();
    assert!(Doctor::open(restore.path()).unwrap().examine().findings.is_healthy());
    assert_eq!(restore.finish().unwrap().events, 100);
    assert_eq!(names(folder.path()), ["copy", "store.db"]);
    assert_eq!(events(&database), 100);
    publish(&open(&database), 101, 101);
    assert_eq!(events(&database), 101);
}

#[test]
fn what_is_there_is_kept_unless_told_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let (database, copy) = paths(folder.path());
    publish(&open(&database), 1, 3);
    std::fs::write(&copy, "mine").unwrap();
    assert!(matches!(backup(&database, &copy, Existing::Keep), Err(BackupError::Exists(_))));
    assert_eq!(std::fs::read(&copy).unwrap(), b"mine");
    backup(&database, &copy, Existing::Replace).unwrap();
    assert!(matches!(Restore::prepare(&copy, &database, Existing::Keep), Err(BackupError::Exists(_))));
    assert!(matches!(backup(&database, &database, Existing::Replace), Err(BackupError::Itself(_))));
    assert!(matches!(backup(&database, folder.path(), Existing::Replace), Err(BackupError::Exists(_))));
    assert_eq!(events(&database), 3);
}

#[test]
fn a_store_that_somebody_has_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (database, copy) = paths(folder.path());
    let store = open(&database);
    publish(&store, 1, 3);
    backup(&database, &copy, Existing::Keep).unwrap();
    assert!(matches!(Restore::prepare(&copy, &database, Existing::Replace), Err(BackupError::InUse(_))));
    drop(store);
    let serve = ServeLock::acquire(&database).unwrap();
    let refused = Restore::prepare(&copy, &database, Existing::Replace).unwrap_err().to_string();
    assert!(refused.contains("already served by process"), "{refused}");
    drop(serve);
    // A restore that is given up leaves everything as before.
    drop(Restore::prepare(&copy, &database, Existing::Replace).unwrap());
    assert_eq!(names(folder.path()), ["copy", "store.db"]);
    assert_eq!(events(&database), 3);
}

#[test]
fn a_wal_of_the_replaced_store_never_meets_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let (database, copy) = paths(folder.path());
    publish(&open(&database), 1, 3);
    backup(&database, &copy, Existing::Keep).unwrap();
    // A crash leaves the WAL behind with events of its own, and a half-written copy.
    let store = open(&database);
    publish(&store, 4, 50);
    let wal = folder.path().join("store.db-wal");
    let (bytes, main) = (std::fs::read(&wal).unwrap(), std::fs::read(&database).unwrap());
    drop(store);
    std::fs::write(&database, main).unwrap();
    std::fs::write(&wal, bytes).unwrap();
    std::fs::write(folder.path().join("store.db-restoring"), "half").unwrap();
    Restore::prepare(&copy, &database, Existing::Replace).unwrap().finish().unwrap();
    assert_eq!(events(&database), 3);
}

#[test]
fn what_is_no_store_is_not_copied() {
    let folder = tempfile::tempdir().unwrap();
    let (database, copy) = paths(folder.path());
    assert!(matches!(backup(&database, &copy, Existing::Keep), Err(BackupError::ReadOnly(_))));
    assert_eq!(names(folder.path()), Vec::<String>::new());
    std::fs::write(&database, "").unwrap();
    assert!(matches!(backup(&database, &copy, Existing::Keep), Err(BackupError::NoStore { .. })));
    std::fs::write(&database, "no database at all, but long enough to be looked at as one").unwrap();
    assert!(matches!(backup(&database, &copy, Existing::Keep), Err(BackupError::Sqlite { .. })));
    assert_eq!(names(folder.path()), ["store.db"]);
}

#[test]
fn a_backup_of_an_older_version_is_brought_forward() {
    let folder = tempfile::tempdir().unwrap();
    let (database, copy) = paths(folder.path());
    publish(&open(&database), 1, 3);
    backup(&database, &copy, Existing::Keep).unwrap();
    let conn = rusqlite::Connection::open(&copy).unwrap();
    // The tables that versions since the first have added.
    let tables = [
        "off_priority",
        "handlers",
        "lanes",
        "claims",
        "finished",
        "dead_letters",
        "sessions",
        "schedules",
        "heads",
        "history",
        "state_commits",
        "schemas",
    ];
    for table in tables {
        conn.execute_batch(&format!("DROP TABLE {table}")).unwrap();
    }
    for column in ["compacted_to", "dropped_at", "crc"] {
        conn.execute_batch(&format!("ALTER TABLE streams DROP COLUMN {column}")).unwrap();
    }
    for table in ["topics", "groups", "cursors", "tries", "due", "due_ids", "kv"] {
        conn.execute_batch(&format!("ALTER TABLE {table} DROP COLUMN crc")).unwrap();
    }
    conn.execute_batch("DROP TABLE gone_ids").unwrap();
    conn.pragma_update(None, "user_version", 1).unwrap();
    drop(conn);
    assert!(!Doctor::open(&copy).unwrap().examine().findings.is_healthy());
    let restore = Restore::prepare(&copy, &database, Existing::Replace).unwrap();
    let examined = Doctor::open(restore.path()).unwrap().examine();
    assert!(examined.findings.is_healthy(), "{:?}", examined.findings.list());
    restore.finish().unwrap();
    assert_eq!(events(&database), 3);
}

/// Even with `Existing::Replace`, a copy is never written over a file that a database needs.
#[test]
fn no_file_of_a_database_is_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (database, other) = (path("x.partial"), path("other.db"));
    let (store, live) = (open(&database), open(&other));
    publish(&store, 1, 20);
    publish(&live, 1, 5);
    let targets = [
        "x.partial",
        "x.partial-wal",
        "x.partial-shm",
        "x.partial-locks/writer",
        "other.db",
        "other.db-wal",
        "x",
    ];
    for target in targets {
        let refused = backup(&database, &path(target), Existing::Replace).unwrap_err();
        let expected = match target {
            "x.partial" | "x" => matches!(refused, BackupError::Itself(_)),
            "other.db" => matches!(refused, BackupError::HasLog { .. }),
            _ => matches!(refused, BackupError::Part { .. }),
        };
        assert!(expected, "{target}: {refused}");
    }
    publish(&store, 21, 30);
    drop((store, live));
    assert_eq!((events(&database), events(&other)), (30, 5));

    let (database, copy) = (path("store.db"), path("store.db-restoring"));
    std::fs::rename(path("x.partial"), &copy).unwrap();
    let refused = Restore::prepare(&copy, &database, Existing::Keep).unwrap_err();
    assert!(matches!(refused, BackupError::Itself(_)), "{refused}");
    assert_eq!(events(&copy), 30);
}
