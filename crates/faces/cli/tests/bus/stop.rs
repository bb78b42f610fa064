//! Stopping a server, and starting one beside a running one.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::server::Server;

#[test]
fn sigterm_ends_with_zero_and_what_was_in_flight_comes_again_uncounted() {
    let mut server = Server::start();
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": 1}));
    let _ = (socket.next(), socket.next());
    assert_eq!(server.terminate(), Some(0));
    server.restart();
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    assert_eq!(socket.expect("MESSAGE")["envelope"].get("attempts"), None);
}

/// A stopped server's one file contains everything, so that a copy of it is complete.
#[test]
fn a_stopped_server_leaves_one_file() {
    let mut server = Server::start();
    let mut socket = server.socket();
    socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": 1}));
    assert_eq!(socket.next()["type"], "PUBLISHED");
    // Connections, a subscription and an HTTP request: none of them may keep the store open.
    socket.subscribe("t", "g", &json!({}));
    assert_eq!(server.get("/topics/t/events").0, 200);
    assert_eq!(server.terminate(), Some(0));
    let mut left: Vec<_> = std::fs::read_dir(server.folder())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    left.sort();
    assert_eq!(left, ["test.db", "test.db-locks"]);
}

#[test]
fn a_second_server_on_the_same_store_refuses_to_start_and_says_who_holds_it() {
    let server = Server::start();
    let second = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store", "sqlite:///test.db", "--socket", "none"])
        .current_dir(server.folder())
        .output()
        .expect("the binary runs");
    assert_eq!(second.status.code(), Some(1));
    assert!(second.stdout.is_empty());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains(&server.pid().to_string()), "{said}");
}

#[test]
fn a_log_that_cannot_be_written_takes_nothing_with_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let full = File::options().write(true).open("/dev/full").expect("a device that is always full");
    let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store", "sqlite:///test.db", "--socket", "none"])
        .current_dir(folder.path())
        .env("RUST_LOG", "debug")
        .stdout(Stdio::piped())
        .stderr(full)
        .spawn()
        .expect("the binary starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let ready: serde_json::Value = serde_json::from_str(&line).expect("the ready line");
    let mut socket = crate::socket::Socket::open(ready["ws"].as_str().expect("an address"));
    assert_eq!(socket.publish("t", &json!(1)), 1);
    let asked = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().expect("kill runs");
    assert!(asked.success());
    assert_eq!(child.wait().expect("the child ends").code(), Some(0));
}
