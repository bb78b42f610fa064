//! Two processes on one journal in a folder, one of which is killed again and again: every batch that was confirmed is
//! there, at the offset that was told.

#![allow(clippy::unwrap_used)]

mod harness;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use harness::machine::{dump, heads};
use millrace_conformance::build::{append, append_id, batch, put, stream, trim};
use millrace_journal::{DirectoryJournal, Journal};
use millrace_model::{Offset, Outcome, Space};
use millrace_store::{KeyRange, ReadLimit, Store};
use millrace_store_journal::{JournalSettings, JournalStore, Leadership, SystemEngineClock};
use millrace_store_sqlite::SqliteCopies;

const WHOLE: ReadLimit = ReadLimit { events_max: usize::MAX, bytes_max: usize::MAX };
const FOLDER: &str = "MILLRACE_TEST_FOLDER";
const NAME: &str = "MILLRACE_TEST_NAME";
const IS_FREE: &str = "MILLRACE_TEST_IS_FREE";

/// Everything that takes a day takes a moment here.
fn settings(is_free: bool) -> JournalSettings {
    JournalSettings {
        leadership: if is_free { Leadership::Free } else { Leadership::Needed },
        lead_timeout_ms: 300,
        follow_ms: 10,
        snapshot_records: 40,
        records_kept: 10,
        part_bytes: 16 << 10,
        manifest_refresh_ms: 100,
        manifest_age_ms_max: 1_000,
        trim_grace_ms: 5_000,
        backoff_ms_max: 20,
        ..JournalSettings::default()
    }
}

fn open(folder: &Path, name: &str, is_free: bool) -> JournalStore {
    let journal = Arc::new(DirectoryJournal::new(folder.join("journal")));
    let copies = Arc::new(SqliteCopies::new(folder.join(format!("{name}.db")), harness::small()));
    let clock = Arc::new(SystemEngineClock);
    JournalStore::open(journal, copies, settings(is_free), clock, &mut |_: &str| true).unwrap()
}

/// Not a test of its own: the body of the child processes. Does nothing unless the parent sets the environment.
#[test]
fn child_writes_until_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let (name, is_free) = (std::env::var(NAME).unwrap(), std::env::var_os(IS_FREE).is_some());
    let (s, other) = (stream("crash", 0), stream("crash", 1));
    for round in 0u64.. {
        let store = open(&folder, &name, is_free);
        while !is_free && !store.try_lead().unwrap() {
            thread::sleep(std::time::Duration::from_millis(10));
        }
        for n in 0u64.. {
            let id = format!("{name}-{}-{round}-{n}", std::process::id());
            let mut ops = vec![
                append_id(&s, &id, &id, 1_000_000),
                append(&other, "x"),
                put(Space::Kv, &format!("last-{name}"), &id),
            ];
            if n % 20 == 19 {
                ops.push(trim(&other, n));
            }
            let outcomes = match store.commit(&[batch(1, ops)]) {
                Ok(outcomes) => outcomes,
                // Paused for too long, on a busy machine.
                Err(_) => break,
            };
            let [Outcome::Done(done)] = &outcomes[..] else { panic!("{outcomes:?}") };
            assert!(!done.appended[0].duplicate);
            let mut out = std::io::stdout().lock();
            writeln!(out, "confirmed {} {id}", done.appended[0].offset.0).unwrap();
            out.flush().unwrap();
            if n % 10 == 0 {
                store.maintain(20).unwrap();
            }
        }
    }
}

/// A batch that a child has confirmed: its name, the offset and the id.
type Confirmed = (&'static str, u64, String);

fn spawn(folder: &Path, name: &'static str, is_free: bool, confirmed: &Sender<Confirmed>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child_writes_until_killed", "--nocapture"])
        .env(FOLDER, folder)
        .env(NAME, name)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if is_free {
        command.env(IS_FREE, "1");
    }
    let mut child = command.spawn().unwrap();
    let (lines, confirmed) = (BufReader::new(child.stdout.take().unwrap()).lines(), confirmed.clone());
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let mut words = line.split(' ').skip_while(|word| *word != "confirmed").skip(1);
            let (Some(offset), Some(id)) = (words.next(), words.next()) else { continue };
            // A line that was cut by the kill says nothing.
            if let Ok(offset) = offset.parse() {
                let _ = confirmed.send((name, offset, id.to_owned()));
            }
        }
    });
    child
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn run(rounds: usize, per_round: usize, is_free: bool) {
    let folder = tempfile::tempdir().unwrap();
    let (sender, receiver): (Sender<Confirmed>, Receiver<Confirmed>) = channel();
    let names = ["one", "two"];
    let mut children = names.map(|name| spawn(folder.path(), name, is_free, &sender));
    let mut all: BTreeMap<u64, String> = BTreeMap::new();
    for _ in 0..rounds {
        // The first to confirm this many, which is the leader if there is one, dies.
        let mut counts = [0; 2];
        let doomed = loop {
            let (name, offset, id) = receiver.recv().unwrap();
            let before = all.insert(offset, id.clone());
            assert!(before.is_none_or(|before| before == id), "offset {offset} was given twice");
            let at = usize::from(name == names[1]);
            counts[at] += 1;
            if counts[at] == per_round {
                break at;
            }
        };
        kill(&mut children[doomed]);
        children[doomed] = spawn(folder.path(), names[doomed], is_free, &sender);
    }
    children.iter_mut().for_each(kill);
    drop(sender);
    for (_, offset, id) in receiver {
        let before = all.insert(offset, id.clone());
        assert!(before.is_none_or(|before| before == id), "offset {offset} was given twice");
    }
    check(folder.path(), &all, is_free);
}

fn check(folder: &Path, confirmed: &BTreeMap<u64, String>, is_free: bool) {
    let journal = DirectoryJournal::new(folder.join("journal"));
    assert!(heads(&journal as &dyn Journal).iter().map(|head| head.term).is_sorted());
    let fresh = open(folder, "fresh", is_free);
    let page = fresh.read(&stream("crash", 0), Offset(1), WHOLE).unwrap();
    assert_eq!(page.damaged, []);
    for (offset, id) in confirmed {
        let event = &page.events[*offset as usize - 1];
        assert_eq!((event.offset.0, event.id.to_string()), (*offset, id.clone()), "moved or lost");
    }
    // The row and the event of a batch are of one record.
    for name in ["one", "two"] {
        let row = fresh.scan(Space::Kv, &KeyRange::prefix(&format!("last-{name}")), 1).unwrap();
        let last = page.events.iter().rev().find(|event| event.id.to_string().starts_with(name));
        let last = last.map(|event| event.id.to_string());
        assert_eq!(row.first().map(|row| String::from_utf8(row.value.to_vec()).unwrap()), last);
    }
    for name in ["one", "two"] {
        assert_eq!(dump(&open(folder, name, is_free)), dump(&fresh), "the copy of {name}");
    }
    assert!(!confirmed.is_empty());
}

#[test]
fn a_leader_is_killed_again_and_again() {
    run(6, 60, false);
}

#[test]
fn two_writers_without_a_lead_are_killed_again_and_again() {
    run(8, 60, true);
}
