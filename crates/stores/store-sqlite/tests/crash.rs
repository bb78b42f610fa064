//! A writing process is killed at any moment: everything confirmed as durable is there, and nothing is torn.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use millrace_conformance::build::{append, batch, put, stream, trim};
use millrace_model::{Offset, Outcome, Space};
use millrace_store::{KeyRange, ReadLimit, Store};
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

const WHOLE: ReadLimit = ReadLimit { events_max: usize::MAX, bytes_max: usize::MAX };
const STORE: &str = "MILLRACE_TEST_STORE";
const COMMITS: &str = "MILLRACE_TEST_COMMITS";

fn options() -> SqliteOptions {
    SqliteOptions { fold_events: 50, loc_events_max: 20, wal_bytes: 256 << 10, ..SqliteOptions::default() }
}

/// Not a test of its own: the body of the child processes. Does nothing unless the parent sets the environment.
#[test]
fn child_writes_until_killed() {
    let Some(path) = std::env::var_os(STORE).map(PathBuf::from) else { return };
    let commits: u64 = std::env::var(COMMITS).unwrap().parse().unwrap();
    let store = SqliteStore::open(&path, options()).unwrap();
    let (s, other) = (stream("crash", 0), stream("crash", 1));
    for n in 0..commits {
        let ops = vec![append(&s, "first"), append(&s, "second"), append(&other, "third")];
        let Outcome::Done(done) = store.commit(&[batch(n, ops)]).unwrap().remove(0) else { panic!() };
        // The row names the offset that its own batch reached: both or neither must survive.
        let last = done.appended[1].offset.0;
        let row = format!("{last:08}");
        let mut ops = vec![append(&s, &row), put(Space::Kv, "last", &row)];
        if n % 50 == 0 {
            ops.push(trim(&other, done.appended[2].offset.0));
        }
        store.commit(&[batch(n, ops)]).unwrap();
        store.maintain(10).unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "confirmed {}", last + 1).unwrap();
        out.flush().unwrap();
    }
}

fn spawn(path: &Path, commits: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_writes_until_killed", "--nocapture"])
        .env(STORE, path)
        .env(COMMITS, commits.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn last_confirmed(child: &mut Child) -> u64 {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let confirmed =
        lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("confirmed ")?.parse().ok());
    confirmed.last().unwrap_or(0)
}

fn check(path: &Path, confirmed: u64) -> u64 {
    let store = SqliteStore::open(path, options()).unwrap();
    let page = store.read(&stream("crash", 0), Offset(1), WHOLE).unwrap();
    assert_eq!(page.damaged, []);
    assert!(page.through.0 >= confirmed, "{} stored, {confirmed} confirmed", page.through);
    for (at, event) in page.events.iter().enumerate() {
        assert_eq!(event.offset.0, at as u64 + 1);
    }
    let numbered = page.events.iter().rev().find_map(|event| {
        let text = event.body.payload.as_str().trim_matches('"');
        text.parse::<u64>().ok().map(|number| (number, event.offset.0))
    });
    let rows = store.scan(Space::Kv, &KeyRange::all(), 10).unwrap();
    if let Some((number, _)) = numbered {
        assert_eq!(
            rows[0].value.as_ref(),
            format!("{number:08}").as_bytes(),
            "event and row are of one batch"
        );
    }
    page.through.0
}

#[test]
fn whatever_was_confirmed_survives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let mut stored = 0;
    for round in 0..6u64 {
        let mut child = spawn(&path, u64::MAX);
        std::thread::sleep(Duration::from_millis(120 + round * 37));
        child.kill().unwrap();
        let confirmed = last_confirmed(&mut child);
        child.wait().unwrap();
        let now_stored = check(&path, confirmed.max(stored));
        stored = now_stored;
    }
    assert!(stored > 0, "no child ever got to write");
}

#[test]
fn two_processes_share_one_store_and_one_of_them_dies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let mut steady = spawn(&path, 60);
    let mut doomed = spawn(&path, u64::MAX);
    std::thread::sleep(Duration::from_millis(150));
    doomed.kill().unwrap();
    let by_doomed = last_confirmed(&mut doomed);
    let by_steady = last_confirmed(&mut steady);
    doomed.wait().unwrap();
    assert!(steady.wait().unwrap().success(), "the survivor is not held up");
    assert!(check(&path, by_doomed.max(by_steady)) >= 180);
}
