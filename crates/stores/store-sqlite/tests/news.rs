//! Handles that are told of the commits of others: when they rely on it, and what happens when telling fails.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use millrace_conformance::build::{append, batch, stream};
use millrace_store::{CommitNumber, NewsWake, OtherHandles, Store, newest_commit};
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

fn wake() -> (NewsWake, Receiver<()>) {
    let (called, calls) = channel();
    let wake = move || {
        // An error means that nobody waits any more.
        let _ = called.send(());
    };
    (Arc::new(wake), calls)
}

fn publish(store: &SqliteStore) {
    store.commit(&[batch(1, vec![append(&stream("t", 0), "x")])]).unwrap();
}

fn locks(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-locks");
    name.into()
}

fn sockets(path: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(locks(path)).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| file.file_name().unwrap().to_string_lossy().starts_with("news-")).collect()
}

/// Returns the lock that a handle of an older version holds.
fn older_handle(path: &Path) -> File {
    let file = File::options().append(true).create(true).open(locks(path).join("present")).unwrap();
    file.try_lock_shared().unwrap();
    file
}

#[test]
fn a_handle_that_listens_relies_on_being_told_and_on_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path);
    assert_eq!(store.other_handles(), OtherHandles::None, "it does not listen, and is alone");
    let beside = open(&path);
    assert_eq!(store.other_handles(), OtherHandles::Silent, "it does not listen, and is not alone");
    let (wake, _calls) = wake();
    assert!(store.wake_on_news(&wake).unwrap());
    let relies = if cfg!(target_os = "linux") { OtherHandles::Told } else { OtherHandles::None };
    assert_eq!(store.other_handles(), relies);
    assert_eq!(beside.other_handles(), OtherHandles::Silent, "the other one has not asked");
    drop(beside);
    assert_eq!(store.other_handles(), relies);
    fs::remove_file(&sockets(&path)[0]).unwrap();
    assert_eq!(
        store.other_handles(),
        OtherHandles::None,
        "nobody finds its socket any more, and nobody is there"
    );
    let _beside = open(&path);
    assert_eq!(store.other_handles(), OtherHandles::Silent);
}

#[test]
#[cfg(target_os = "linux")]
fn a_handle_of_an_older_version_ends_the_reliance_when_it_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path);
    let (wake, calls) = wake();
    store.wake_on_news(&wake).unwrap();
    assert_eq!(store.other_handles(), OtherHandles::Told);
    let older = older_handle(&path);
    // Waits for ever if the arrival is not noticed.
    calls.recv().unwrap();
    assert_eq!(store.other_handles(), OtherHandles::Silent);
    drop(older);
    assert_eq!(store.other_handles(), OtherHandles::Told);
    fs::remove_file(locks(&path).join("present")).unwrap();
    calls.recv().unwrap();
    while store.other_handles() == OtherHandles::Told {
        std::thread::yield_now();
    }
    assert_eq!(store.other_handles(), OtherHandles::None, "arrivals are not noticed any more");
}

#[test]
fn a_handle_is_not_called_for_its_own_commits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let (store, other) = (open(&path), open(&path));
    let (wake, calls) = wake();
    store.wake_on_news(&wake).unwrap();
    // The calls for arrivals have come before that of the other's commit.
    publish(&other);
    while newest_commit(&store).unwrap() < CommitNumber(1) {
        calls.recv().unwrap();
    }
    let (second, second_calls) = self::wake();
    other.wake_on_news(&second).unwrap();
    for _ in 0..10 {
        publish(&store);
    }
    second_calls.recv().unwrap();
    drop(store);
    drop(wake);
    // The first handle's thread has ended: what it was called for is in the channel.
    assert!(calls.iter().count() <= 1, "at most the rest of what it was called for before");
}

#[test]
fn sockets_of_killed_processes_are_removed_and_those_of_closed_handles_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path);
    // A socket that nobody reads any more, as a killed process leaves it.
    let stale = locks(&path).join("news-1-0");
    drop(std::os::unix::net::UnixDatagram::bind(&stale).unwrap());
    assert!(stale.exists());
    publish(&store);
    assert!(!stale.exists());
    let (wake, _calls) = wake();
    store.wake_on_news(&wake).unwrap();
    assert_eq!(sockets(&path).len(), 1);
    drop(store);
    assert_eq!(sockets(&path), Vec::<PathBuf>::new());
}

#[test]
fn a_store_under_a_long_path_is_told_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("a".repeat(120)).join("b".repeat(120));
    fs::create_dir_all(&long).unwrap();
    let path = long.join("store.db");
    let (store, other) = (open(&path), open(&path));
    let (wake, calls) = wake();
    assert!(store.wake_on_news(&wake).unwrap());
    publish(&other);
    while newest_commit(&store).unwrap() < CommitNumber(1) {
        calls.recv().unwrap();
    }
}

#[test]
fn a_handle_that_cannot_listen_says_why_and_polls() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path);
    for n in 0..1024 {
        fs::write(locks(&path).join(format!("news-0-{n}")), "").unwrap();
    }
    let (wake, _calls) = wake();
    let error = store.wake_on_news(&wake).unwrap_err().to_string();
    assert!(error.contains("1024"), "{error}");
    assert_eq!(store.other_handles(), OtherHandles::None);
    let _other = open(&path);
    assert_eq!(store.other_handles(), OtherHandles::Silent);
    publish(&store);
}
