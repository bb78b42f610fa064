//! Many processes that never poll: each sleeps until it is told of a commit. Processes are killed beside them.
//!
//! Every process commits some events and waits until it has seen those of all: a commit that is told to nobody, in
//! whichever order processes open the store, listen and commit, would leave one of them asleep for ever.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;

use millrace_conformance::build::{append, batch, stream};
use millrace_store::{NewsWake, Store};
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

const STORE: &str = "MILLRACE_NEWS_STORE";
const ROUNDS: u64 = 6;
const PROCESSES: u64 = 6;
const EVENTS_EACH: u64 = 20;

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

fn publish(store: &SqliteStore, topic: &str) {
    store.commit(&[batch(1, vec![append(&stream(topic, 0), "x")])]).unwrap();
}

fn events(store: &SqliteStore, topic: &str) -> u64 {
    let streams = store.streams().unwrap();
    streams.iter().find(|bounds| bounds.stream == stream(topic, 0)).map_or(0, |bounds| bounds.next.0 - 1)
}

/// This test binary again, running one test by its name.
fn spawn(test: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(STORE, path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Publishes its share and waits for everybody's, without a single poll by time.
fn take_part(path: &Path) {
    let store = open(path);
    let (called, calls) = channel();
    let wake: NewsWake = Arc::new(move || {
        // An error means that nobody waits any more.
        let _ = called.send(());
    });
    assert!(store.wake_on_news(&wake).unwrap());
    for _ in 0..EVENTS_EACH {
        publish(&store, "all");
    }
    while events(&store, "all") < PROCESSES * EVENTS_EACH {
        calls.recv().unwrap();
    }
}

#[test]
fn child_that_takes_part() {
    if let Some(path) = std::env::var_os(STORE) {
        take_part(Path::new(&path));
    }
}

/// Publishes until it is killed, and listens.
#[test]
fn child_that_is_killed() {
    if let Some(path) = std::env::var_os(STORE) {
        let store = open(Path::new(&path));
        let wake: NewsWake = Arc::new(|| ());
        assert!(store.wake_on_news(&wake).unwrap());
        loop {
            publish(&store, "noise");
        }
    }
}

#[test]
fn nobody_sleeps_over_a_commit() {
    for _ in 0..ROUNDS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = open(&path);
        let mut killed = spawn("child_that_is_killed", &path);
        let mut others: Vec<Child> = (1..PROCESSES).map(|_| spawn("child_that_takes_part", &path)).collect();
        while events(&store, "noise") < 10 {
            std::thread::yield_now();
        }
        killed.kill().unwrap();
        killed.wait().unwrap();
        take_part(&path);
        for child in &mut others {
            // Waits for ever if the child was not told.
            assert!(child.wait().unwrap().success());
        }
        // The socket of the killed process is removed by the next commit that lists sockets.
        drop(store);
        publish(&open(&path), "all");
        let locks = folder.path().join("store.db-locks");
        let left = std::fs::read_dir(locks).unwrap().map(|entry| entry.unwrap().file_name());
        let sockets: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("news-")).collect();
        assert!(sockets.is_empty(), "{sockets:?}");
    }
}
