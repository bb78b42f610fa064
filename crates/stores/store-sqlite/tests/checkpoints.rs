//! The WAL is copied into the database beside the writer: it stays small, and a copy that fails stops every handle.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use millrace_conformance::build::{append, batch, stream};
use millrace_model::{Durability, Offset, Outcome};
use millrace_store::{ReadLimit, Store, StoreError};
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

const WHOLE: ReadLimit = ReadLimit { events_max: 100_000, bytes_max: usize::MAX };
const STORE: &str = "MILLRACE_TEST_STORE";
/// A commit of `large` leaves more than this and less than four times this in the WAL.
const WAL_BYTES: u64 = 1 << 20;
/// Enough for the database after one `large`, but not after two; `ulimit` counts in blocks of 512 bytes.
const FILE_BLOCKS_MAX: u64 = (3 << 20) / 512;

fn open(path: &Path, wal_bytes: u64) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions { wal_bytes, ..SqliteOptions::default() }).unwrap()
}

fn wal(path: &Path) -> PathBuf {
    path.with_extension("db-wal")
}

fn large(store: &SqliteStore) {
    let text = "x".repeat(1500);
    let events = (0..1000).map(|_| append(&stream("large", 0), &text)).collect();
    assert!(matches!(store.commit(&[batch(1, events)]).unwrap()[0], Outcome::Done(_)));
}

#[test]
fn the_wal_stays_within_its_bound_while_it_is_written_to() {
    const SMALL: u64 = 128 << 10;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path, SMALL);
    let text = "x".repeat(200);
    let mut longest = 0;
    for n in 0..1500 {
        store.commit(&[batch(n, vec![append(&stream("t", 0), &text)])]).unwrap();
        longest = longest.max(wal(&path).metadata().unwrap().len());
    }
    // The handle only estimates what it writes.
    assert!(longest < 6 * SMALL, "{longest}");
    drop(store);
    assert!(!wal(&path).exists(), "the last one to leave empties it");
    assert_eq!(open(&path, SMALL).read(&stream("t", 0), Offset(1), WHOLE).unwrap().events.len(), 1500);
}

#[test]
fn a_wal_that_a_long_read_made_grow_is_cut_back() {
    const SMALL: u64 = 64 << 10;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path, SMALL);
    large(&store);
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT count(*) FROM events", [], |_| Ok(())).unwrap();
    large(&store);
    large(&store);
    assert!(wal(&path).metadata().unwrap().len() > 2 << 20, "the reader holds it");
    drop(reader);
    let written = (0..).find(|n| {
        store.commit(&[batch(*n, vec![append(&stream("t", 0), "x")])]).unwrap();
        wal(&path).metadata().unwrap().len() < 6 * SMALL
    });
    assert!(written.is_some());
}

#[test]
fn closing_after_unsynced_commits_still_leaves_everything_in_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path, WAL_BYTES);
    large(&store);
    let mut unsynced = batch(2, vec![append(&stream("t", 0), "x")]);
    unsynced.durability = Durability::Memory;
    store.commit(&[unsynced]).unwrap();
    drop(store);
    assert!(!wal(&path).exists());
    let again = open(&path, WAL_BYTES);
    assert_eq!(again.read(&stream("large", 0), Offset(1), WHOLE).unwrap().events.len(), 1000);
    assert_eq!(again.read(&stream("t", 0), Offset(1), WHOLE).unwrap().events.len(), 1);
}

/// Not a test of its own: the body of a child process whose files may not grow. Does nothing unless the parent sets the
/// environment.
#[test]
fn child_that_cannot_checkpoint() {
    let Some(path) = std::env::var_os(STORE).map(PathBuf::from) else { return };
    // Closing the handle copies the events into the database; the WAL begins empty.
    large(&open(&path, WAL_BYTES));
    let store = open(&path, WAL_BYTES);
    large(&store);
    // Nobody writes now: only the checkpointer can reach the limit.
    let reason = loop {
        match store.poisoned() {
            Some(reason) => break reason,
            None => thread::yield_now(),
        }
    };
    let more = store.commit(&[batch(3, vec![append(&stream("large", 0), "more")])]);
    assert!(matches!(more, Err(StoreError::Poisoned(_))), "{more:?}");
    println!("poisoned {reason}");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn spawn_limited(path: &Path) -> Child {
    let limited = format!("trap '' XFSZ; ulimit -f {FILE_BLOCKS_MAX}; exec \"$0\" \"$@\"");
    Command::new("sh")
        .args(["-c", &limited])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_cannot_checkpoint", "--nocapture"])
        .env(STORE, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_copy_that_fails_beside_the_writer_poisons_every_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let s = stream("large", 0);
    let mut child = spawn_limited(&path);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reason = lines.find_map(|line| line.unwrap().strip_prefix("poisoned ").map(str::to_owned));
    assert!(reason.as_ref().is_some_and(|reason| reason.starts_with("checkpoint: ")), "{reason:?}");

    let other = open(&path, WAL_BYTES);
    let one_more = || [batch(4, vec![append(&s, "more")])];
    let refused = other.commit(&one_more());
    assert!(
        matches!(&refused, Err(StoreError::Poisoned(reason)) if reason.text().starts_with("checkpoint: ")),
        "{refused:?}"
    );
    assert_eq!(other.read(&s, Offset(1), WHOLE).unwrap().events.len(), 2000, "reads go on");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    drop(other);

    let fresh = open(&path, WAL_BYTES);
    assert_eq!(fresh.poisoned(), None);
    assert!(matches!(fresh.commit(&one_more()).unwrap()[0], Outcome::Done(_)));
    let page = fresh.read(&s, Offset(1), WHOLE).unwrap();
    assert_eq!((page.events.len(), page.damaged), (2001, vec![]));
}
