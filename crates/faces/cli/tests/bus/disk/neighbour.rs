//! A second process on the store: this test binary again, with an embedded session that publishes one event.

use std::process::{Child, Command, Stdio};

use millrace::{Event, Session};
use serde::{Deserialize, Serialize};

use crate::disk::faults::Faults;
use crate::server::eventually;

const STORE: &str = "NEIGHBOUR_STORE";
pub const TOPIC: &str = "neighbour.said";

#[derive(Serialize, Deserialize, Event)]
#[event(name = "neighbour.said")]
struct Said {
    text: String,
}

/// Runs in the second process. Does nothing in a normal test run, where the variable `STORE` is missing.
#[test]
fn process() {
    let Some(url) = std::env::var_os(STORE) else { return };
    let session = Session::open(url.to_str().expect("a URL")).expect("a session");
    session.publish(Said { text: "hello".to_owned() }).expect("a commit");
}

pub struct Neighbour(Child);

impl Neighbour {
    pub fn start(store_url: &str, faults: &Faults) -> Neighbour {
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "disk::neighbour::process", "--test-threads=1"])
            .env(STORE, store_url)
            .envs(faults.env())
            .stdout(Stdio::null())
            .spawn()
            .expect("this program starts");
        Neighbour(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(kill.expect("kill runs").success());
    }

    /// Sends SIGSTOP and waits until no thread of the process runs any more, because a signal takes a moment.
    #[track_caller]
    pub fn stop(&self) {
        self.signal("STOP");
        let is_stopped = |stat: &str| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'));
        eventually("it is stopped", || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("a process");
            // A thread that has just ended has no file any more, and does not run.
            let mut stats =
                tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
            stats.all(|stat| is_stopped(&stat))
        });
    }

    #[track_caller]
    pub fn ends_well(mut self) {
        assert!(self.0.wait().expect("the child can be waited for").success());
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // Fails if the process has ended already, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
