//! The wall clock of a process is set back by three hours: retries still happen, and the leases of dead processes still
//! end.
#![allow(unreachable_pub, dead_code, clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../cli/tests/bus/shifted.rs"]
mod shifted;

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use millrace::{Config, Event, Handler, Session};
use millrace_model::{ClaimRow, ClaimState, Space};
use millrace_store::{KeyRange, Row};
use millrace_stores::{StoreOptions, open_shared};
use serde::{Deserialize, Serialize};
use shifted::{HOUR_MS, ShiftedClock};

const FOLDER: &str = "CLOCK_TEST_FOLDER";

#[derive(Event, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The first attempt hangs instead of failing.
    pub hangs: bool,
}

fn url(folder: &Path) -> String {
    format!("sqlite:///{}", folder.join("app.db").display())
}

fn diary(folder: &Path) -> PathBuf {
    folder.join("diary")
}

/// With this backoff, the first retry comes a little more than two seconds after the failure.
fn config() -> Config {
    Config { event_claim_lease_ms: 2000, event_backoff_base_ms: 1000, ..Config::default() }
}

/// Runs in the child processes. Returns at once without the variable `FOLDER`, so it does nothing in a normal test run.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let session = Session::builder(&url(&folder)).config(config()).open().unwrap();
    let handler = Handler::from_fn::<Task>("tasks", move |ctx| {
        let path = diary(&folder);
        let attempt = std::fs::read_to_string(&path).unwrap_or_default().lines().count() + 1;
        let mut diary = OpenOptions::new().append(true).create(true).open(path).unwrap();
        writeln!(diary, "attempt {attempt}").unwrap();
        match (attempt, ctx.event.hangs) {
            (1, true) => loop {
                std::thread::park();
            },
            (1, false) => Err("not yet".into()),
            _ => Ok(()),
        }
    });
    let running = session.spawn(vec![handler], vec![]).unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    running.stop().unwrap();
}

struct Process(Child);

impl Process {
    fn start(clock: &ShiftedClock, folder: &Path) -> Process {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder)
            .envs(clock.env())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Process(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has ended already, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `is_so` returns true. The limit of half a minute is no judgement of speed: the panic says which
/// condition never became true.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("never happened: {what}");
}

fn attempts(folder: &Path) -> usize {
    std::fs::read_to_string(diary(folder)).map_or(0, |diary| diary.lines().count())
}

fn set_back_after_the_first_attempt(hangs: bool, dies: bool) {
    let (clock, folder) = (ShiftedClock::new(), tempfile::tempdir().unwrap());
    let folder = folder.path();
    let session = Session::open(&url(folder)).unwrap();
    let mut process = Process::start(&clock, folder);
    session.publish(Task { hangs }).unwrap();
    eventually("the first attempt", || attempts(folder) == 1);
    if !hangs {
        let opened = open_shared(&url(folder).parse().unwrap(), &StoreOptions::default()).unwrap();
        let waits = |row: &Row| ClaimRow::decode(&row.key, &row.value).unwrap().state == ClaimState::Waiting;
        eventually("it waits for its retry", || {
            opened.store.scan(Space::Claims, &KeyRange::all(), 1).unwrap().iter().any(waits)
        });
    }
    if dies {
        process.0.kill().unwrap();
        process.0.wait().unwrap();
    }
    clock.shift(-3 * HOUR_MS);
    if dies {
        process = Process::start(&clock, folder);
    }
    eventually("the second attempt", || attempts(folder) == 2);
    drop(process);
}

#[test]
fn a_retry_comes_on_time() {
    set_back_after_the_first_attempt(false, false);
}

#[test]
fn a_retry_comes_in_the_next_process() {
    set_back_after_the_first_attempt(false, true);
}

#[test]
fn a_lease_of_a_dead_process_ends() {
    set_back_after_the_first_attempt(true, true);
}
