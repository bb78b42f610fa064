//! The processes: this test binary once more, running one test by its name.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use millrace::Session;

use crate::chain::{config, handlers};

const STORE: &str = "MILLRACE_CRASH_STORE";
const SIGKILL: i32 = 9;

pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn file(&self) -> PathBuf {
        self.0.path().join("app.db")
    }

    pub fn url(&self) -> String {
        format!("sqlite:///{}", self.file().display())
    }
}

/// As many processes as there were, whatever happens to them.
pub struct Crew<'a> {
    place: &'a Place,
    processes: Vec<Process>,
    started: usize,
}

struct Process {
    child: Child,
    said: PathBuf,
}

impl<'a> Crew<'a> {
    pub fn start(place: &'a Place, processes: usize) -> Crew<'a> {
        let mut crew = Crew { place, processes: Vec::new(), started: 0 };
        for _ in 0..processes {
            let process = crew.spawn();
            crew.processes.push(process);
        }
        crew
    }

    fn spawn(&mut self) -> Process {
        self.started += 1;
        // To a file: a pipe that nobody reads would stop it when it is full.
        let said = self.place.0.path().join(format!("{}.said", self.started));
        let output = File::create(&said).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process::child", "--nocapture", "--test-threads=1"])
            .env(STORE, self.place.url())
            .stdin(Stdio::piped())
            .stderr(output.try_clone().unwrap())
            .stdout(output)
            .spawn()
            .unwrap();
        Process { child, said }
    }

    /// Nobody ends unless he is killed.
    pub fn are_alive(&mut self) {
        for process in &mut self.processes {
            let ended = process.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", process.said());
        }
    }

    pub fn kill_and_replace(&mut self, at: usize) {
        let fresh = self.spawn();
        let mut old = std::mem::replace(&mut self.processes[at], fresh);
        old.child.kill().unwrap();
        let status = old.child.wait().unwrap();
        assert_eq!(status.signal(), Some(SIGKILL), "{}", old.said());
        old.said();
    }

    /// The end of its input is what tells a process to stop.
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
            // The test has failed already; those that ended before need no killing.
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

/// One of the processes. Without its store it has nothing to do.
#[test]
fn child() {
    let Ok(url) = std::env::var(STORE) else { return };
    let session = Session::open(&url).unwrap().config(config());
    let running = session.spawn(handlers(), vec![]).unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    running.stop().unwrap();
}
