//! The errors of the store keep the errors of SQLite and of the system that they were made from.

#![allow(clippy::unwrap_used)]

use std::error::Error;
use std::io;
use std::path::Path;

use millrace_conformance::build::{append, batch, stream};
use millrace_store::{Store, StoreError};
use millrace_store_sqlite::{Doctor, FileError, ServeLock, SqliteOptions, SqliteStore};
use rusqlite::ErrorCode;

fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path, SqliteOptions { busy_timeout_ms: 20, ..SqliteOptions::default() })
}

/// Walks the chain of sources to the first error of type `E`.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut sources = std::iter::successors(Some(error), |error| (*error).source());
    sources.find_map(|error| error.downcast_ref::<E>())
}

fn code(error: &(dyn Error + 'static)) -> Option<ErrorCode> {
    find::<rusqlite::Error>(error)?.sqlite_error_code()
}

#[test]
fn an_error_of_sqlite_is_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path).unwrap();
    let stranger = rusqlite::Connection::open(&path).unwrap();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let busy = store.commit(&[batch(1, vec![append(&stream("t", 0), "x")])]).unwrap_err();
    assert!(matches!(busy, StoreError::Busy(_)), "{busy}");
    assert_eq!(code(&busy), Some(ErrorCode::DatabaseBusy));
    assert!(busy.source().unwrap().is::<rusqlite::Error>(), "nothing stands between");
    let clone = busy.clone();
    assert_eq!((code(&clone), clone.to_string()), (code(&busy), busy.to_string()));
    let unopened = open(&path).unwrap_err();
    assert!(matches!(unopened, StoreError::Unusable(_)), "{unopened}");
    assert_eq!(code(&unopened), Some(ErrorCode::DatabaseBusy));
}

#[test]
fn a_file_that_is_no_database_has_the_error_of_sqlite_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    std::fs::write(&path, [7; 8192]).unwrap();
    let refused = open(&path).unwrap_err();
    assert_eq!(code(&refused), Some(ErrorCode::NotADatabase), "{refused}");
    assert!(Doctor::open(&path).unwrap().examine().findings.problems() > 0);
}

#[test]
fn an_error_of_the_system_is_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for refused in
        [open(&file.join("store.db")).unwrap_err(), ServeLock::acquire(&file.join("store.db")).unwrap_err()]
    {
        assert!(matches!(refused, StoreError::Unusable(_)), "{refused}");
        let source = find::<io::Error>(&refused).unwrap();
        assert_eq!(source.kind(), io::ErrorKind::NotADirectory, "{refused}");
        assert!(refused.source().unwrap().is::<io::Error>(), "nothing stands between");
    }
}

#[test]
fn a_file_that_is_refused_is_named_by_type() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("store.db"), folder.path().join("other.db"));
    drop(open(&path).unwrap());
    std::fs::hard_link(&path, other).unwrap();
    let refused = open(&path).unwrap_err();
    assert!(matches!(find(&refused), Some(FileError::Linked { names: 2, .. })), "{refused}");
}
