//! Files that opening refuses, and the reasons it gives.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use millrace_store::StoreError;
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

fn refusal(path: &Path) -> String {
    match SqliteStore::open(path, SqliteOptions::default()) {
        Err(StoreError::Unusable(reason)) => reason.text().to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_store_is_created_with_its_folders_and_marked_as_ours() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/store.db");
    drop(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
    let conn = rusqlite::Connection::open(&path).unwrap();
    let pragma = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((pragma("application_id"), pragma("user_version")), (0x4d6c_7263, 6));
    let mode: String = conn.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[test]
fn foreign_files_are_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(
        &text,
        "not a database at all, but long enough to be mistaken for a header of one\n".repeat(20),
    )
    .unwrap();
    assert!(refusal(&text).contains("is not a Millrace store"));

    let foreign = folder.path().join("foreign.db");
    let conn = rusqlite::Connection::open(&foreign).unwrap();
    conn.execute_batch("CREATE TABLE mine (x)").unwrap();
    drop(conn);
    let before = std::fs::read(&foreign).unwrap();
    assert!(refusal(&foreign).ends_with("is not a Millrace store; choose another path"));
    assert_eq!(std::fs::read(&foreign).unwrap(), before);
    assert!(!refusal(folder.path()).is_empty());
}

#[test]
fn a_newer_version_is_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    drop(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.pragma_update(None, "user_version", 99).unwrap();
    drop(conn);
    let reason = refusal(&path);
    assert!(reason.contains("schema version 99, this build knows up to 6"), "{reason}");
}
