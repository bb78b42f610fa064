//! The child processes: each is this test binary again, running one test by its name.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use millrace::{Config, Handler, Session};
use millrace_store::Store;
use millrace_stores::StoreOptions;

use crate::chain::{config, handlers};

pub const STORE: &str = "MILLRACE_CRASH_STORE";
const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;

pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn url(&self) -> String {
        format!("sqlite:///{}", self.0.path().join("app.db").display())
    }

    /// Opens the store beside the sessions, as another process would.
    pub fn store(&self) -> Arc<dyn Store> {
        let url = self.url().parse().unwrap();
        millrace_stores::open_shared(&url, &StoreOptions::default()).unwrap().store
    }
}

/// A fixed number of processes; each one that ends is replaced.
pub struct Crew<'a> {
    place: &'a Place,
    /// The test that each process runs; `env` holds its parameters.
    child: &'static str,
    env: Vec<(&'static str, String)>,
    processes: Vec<Process>,
    started: usize,
}

struct Process {
    child: Child,
    said: PathBuf,
}

impl<'a> Crew<'a> {
    pub fn start(
        place: &'a Place,
        child: &'static str,
        env: Vec<(&'static str, String)>,
        processes: usize,
    ) -> Crew<'a> {
        let mut crew = Crew { place, child, env, processes: Vec::new(), started: 0 };
        for _ in 0..processes {
            let process = crew.spawn();
            crew.processes.push(process);
        }
        crew
    }

    fn spawn(&mut self) -> Process {
        self.started += 1;
        // Output goes to a file: a pipe that is not read would block the process once the pipe is full.
        let said = self.place.0.path().join(format!("{}.said", self.started));
        let output = File::create(&said).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", self.child, "--nocapture", "--test-threads=1"])
            .envs(self.env.iter().cloned())
            .stdin(Stdio::piped())
            .stderr(output.try_clone().unwrap())
            .stdout(output)
            .spawn()
            .unwrap();
        Process { child, said }
    }

    /// Panics if a process has ended that was not killed.
    pub fn are_alive(&mut self) {
        for process in &mut self.processes {
            let ended = process.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", process.said());
        }
    }

    /// Kills one process and starts another in its place. Returns false if the process had aborted just before.
    pub fn kill_and_replace(&mut self, at: usize) -> bool {
        let fresh = self.spawn();
        let mut old = std::mem::replace(&mut self.processes[at], fresh);
        old.child.kill().unwrap();
        let status = old.child.wait().unwrap();
        assert!(matches!(status.signal(), Some(SIGKILL | SIGABRT)), "{status:?}: {}", old.said());
        old.said();
        status.signal() == Some(SIGKILL)
    }

    /// Replaces every process that has aborted, and returns how many there were.
    pub fn replace_aborted(&mut self) -> usize {
        let mut aborted = 0;
        for at in 0..self.processes.len() {
            let process = &mut self.processes[at];
            let Some(status) = process.child.try_wait().unwrap() else { continue };
            assert_eq!(status.signal(), Some(SIGABRT), "{status:?}: {}", process.said());
            self.processes[at] = self.spawn();
            aborted += 1;
        }
        aborted
    }

    /// Stops all processes. A process stops when its standard input ends.
    pub fn stop(mut self) {
        for mut process in std::mem::take(&mut self.processes) {
            drop(process.child.stdin.take());
            let status = process.child.wait().unwrap();
            assert!(status.success(), "{}", process.said());
        }
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // If processes are left here, the test has failed already; those that have ended need no kill.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

impl Process {
    fn said(&self) -> String {
        let said = std::fs::read_to_string(&self.said).unwrap();
        assert!(!said.contains("database is locked"), "{said}");
        said
    }
}

/// Runs in the child processes. Does nothing in a normal test run, where the variable `STORE` is missing.
#[test]
fn child() {
    work(config(), handlers());
}

pub fn work(config: Config, handlers: Vec<Handler>) {
    let Ok(url) = std::env::var(STORE) else { return };
    let session = Session::builder(&url).config(config).open().unwrap();
    let running = session.spawn(handlers, vec![]).unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    running.stop().unwrap();
}
