//! The very first start is interrupted: the next start completes the store.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::disk::faults::Faults;
use crate::server::Server;

/// A first start syncs the journal, the first page and the log before it is ready, several times.
const SYNCS_MIN: u32 = 3;
const SIGKILL: i32 = 9;

#[test]
fn a_first_start_that_is_killed_at_any_sync_is_made_good_by_the_next() {
    let faults = Faults::new();
    for sync in 1.. {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = format!("sqlite:///{}", folder.path().join("first.db").display());
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", "--listen", "127.0.0.1:0", "--socket", "none", "--store", &store])
            .envs(faults.env())
            .env("FAULTS_KILL_SYNC", sync.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let mut ready = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut ready).expect("a pipe");
        if !ready.is_empty() {
            // The server became ready before this sync.
            child.kill().expect("the child can be killed");
            child.wait().expect("the child can be waited for");
            assert!(sync > SYNCS_MIN, "a start has only {} syncs", sync - 1);
            return;
        }
        let ended = child.wait().expect("the child can be waited for");
        assert_eq!(ended.signal(), Some(SIGKILL), "at sync {sync}");
        let server = Server::with(&["--store", &store]);
        assert_eq!(server.socket().publish("t", &json!(1)), 1, "after a kill at sync {sync}");
    }
}
