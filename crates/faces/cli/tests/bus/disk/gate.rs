//! A process is stopped while it holds the store's gate lock: processes that wait for the lock name this process, and
//! no other.

use std::fs::{File, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::disk::faults::Faults;
use crate::disk::neighbour::Neighbour;
use crate::disk::{logged, not_ready, publish, ready_again, stored};
use crate::server::{Server, eventually};

fn lock_file(server: &Server, name: &str) -> File {
    let path = server.folder().join("test.db-locks").join(name);
    File::options().read(true).write(true).open(path).expect("a lock file")
}

/// Writes into a lock file what a process that has locked it writes.
fn sign(lock: &File, pid: u32) {
    lock.write_all_at(format!("{pid:<15}\n").as_bytes(), 0).expect("a disk with room");
}

/// Returns the process that holds the gate lock, if any.
fn in_gate(server: &Server) -> Option<u32> {
    let gate = lock_file(server, "gate");
    if !matches!(gate.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return None;
    }
    std::io::read_to_string(gate).expect("a file").trim().parse().ok()
}

#[test]
fn a_process_that_is_stopped_in_the_gate_is_named_and_not_the_last_one_that_wrote() {
    // The server's own maintenance is switched off, so that it does not take the gate itself.
    let flags =
        ["--commit-stall-ms-max", "300", "--metrics-interval-ms", "0", "--maintain-interval-ms", "3600000"];
    let server = Server::with_log_and_env(&flags, &[]);
    let mut socket = server.socket();
    publish(&mut socket, 1);
    socket.expect("PUBLISHED");
    // This process holds the writer lock, so the neighbour waits for that lock while holding the gate. Then this
    // process releases the writer lock.
    let innocent = std::process::id();
    let writer = lock_file(&server, "writer");
    writer.lock().expect("the turn");
    sign(&writer, innocent);
    let faults = Faults::new();
    let neighbour = Neighbour::start(&server.store_url(), &faults);
    loop {
        eventually("the neighbour is in the gate", || in_gate(&server) == Some(neighbour.pid()));
        neighbour.stop();
        if in_gate(&server) == Some(neighbour.pid()) {
            break;
        }
        // The neighbour held the gate only for opening the store: let it continue.
        neighbour.signal("CONT");
    }
    drop(writer);

    publish(&mut socket, 2);
    let holder = format!("behind process {}, which stands in the gate", neighbour.pid());
    not_ready(&server, &holder);
    logged(&server, &["WARN", "a commit has not come through yet", &holder]);
    assert!(!server.log().contains(&format!("process {innocent}")), "{}", server.log());

    neighbour.signal("CONT");
    assert_eq!(socket.expect("PUBLISHED")["rid"], 2);
    neighbour.ends_well();
    ready_again(&server);
    assert_eq!(stored(&server, "t").len(), 2);
}

/// Starts a server, asks it to stop once its log contains all of `words`, and returns its exit code.
fn stopped_while_opening(server: &Server, log: &Path, words: &[&str]) -> Option<i32> {
    let store = server.store_url();
    let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["serve", "--listen", "127.0.0.1:0", "--socket", "none", "--store", &store])
        .stdout(Stdio::null())
        .stderr(File::create(log).expect("a file"))
        .spawn()
        .expect("the binary starts");
    eventually("the start says what it waits for", || {
        let log = std::fs::read_to_string(log).expect("a log");
        log.lines().any(|line| words.iter().all(|word| line.contains(word)))
    });
    let kill = Command::new("kill").arg(child.id().to_string()).status();
    assert!(kill.expect("kill runs").success());
    child.wait().expect("the child can be waited for").code()
}

#[test]
fn a_start_behind_a_stuck_gate_says_who_is_in_it_and_can_be_stopped() {
    let mut server = Server::start();
    server.socket().publish("t", &serde_json::json!(1));
    server.terminate();
    let log = server.folder().join("stuck");
    let told = ["WARN", "the store cannot be opened yet", "a program that holds a lock"];
    let gate = lock_file(&server, "gate");
    gate.lock().expect("the gate");
    // A process that has ended left its id in the file: it must not be named.
    sign(&gate, server.pid());
    assert_eq!(stopped_while_opening(&server, &log, &told), Some(0));
    let pid = format!("process {}", std::process::id());
    sign(&gate, std::process::id());
    let told = ["WARN", "the store cannot be opened yet", &pid];
    assert_eq!(stopped_while_opening(&server, &log, &told), Some(0));
    drop(gate);
    server.restart();
    assert_eq!(stored(&server, "t").len(), 1);
}
