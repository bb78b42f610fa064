//! Stopping, and starting beside a server that runs.

use std::process::Command;

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

#[test]
fn a_second_server_on_the_same_store_refuses_to_start_and_says_who_holds_it() {
    let server = Server::start();
    let second = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store", "sqlite:///test.db"])
        .current_dir(server.folder())
        .output()
        .expect("the binary runs");
    assert_eq!(second.status.code(), Some(1));
    assert!(second.stdout.is_empty());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains(&server.pid().to_string()), "{said}");
}
