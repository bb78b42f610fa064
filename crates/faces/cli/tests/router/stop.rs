//! The stop of the server, seen from the socket.

use serde_json::json;

use crate::client::{Client, fault, path, serve};

#[test]
fn shutdown_is_acknowledged_and_then_the_server_ends_with_zero() {
    let mut server = serve(&[]);
    let (mut client, mut idle) = (Client::of(&server), Client::of(&server));
    idle.still_works();
    let reply = client.reply("command", "Syscall.Shutdown", &json!({}));
    assert_eq!(reply, json!({"message": "Shutdown acknowledged"}));
    client.ends();
    idle.ends();
    assert_eq!(server.wait(), Some(0));
    assert!(!path(&server).exists(), "the socket is removed");
}

#[test]
fn sigterm_answers_what_is_in_hand_and_closes() {
    let mut server = serve(&[]);
    let mut client = Client::of(&server);
    for n in 0..200 {
        client.send("command", "Memory.Set", &json!({"key": format!("/{n}"), "value": n}));
    }
    assert_eq!(client.next()["kind"], "reply");
    server.signal("TERM");
    // Each request gets exactly one answer, whether it was carried out or not.
    for _ in 1..200 {
        let answer = client.next();
        if answer["kind"] == "error" {
            assert_eq!(fault(&answer), (503, "Kernel shutting down".to_owned()));
        }
    }
    client.ends();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn what_was_answered_is_there_after_a_kill() {
    let mut server = serve(&[]);
    let mut client = Client::of(&server);
    for n in 0..100 {
        client.reply("command", "Memory.Set", &json!({"key": format!("/{n}"), "value": n}));
    }
    server.kill_and_restart();
    let mut client = Client::of(&server);
    for n in 0..100 {
        assert_eq!(client.reply("query", "Memory.Get", &json!({"key": format!("/{n}")})), n);
    }
}

#[test]
fn reload_reads_the_configuration_again() {
    let server = serve(&[]);
    let reply = Client::of(&server).reply("command", "Syscall.Reload", &json!({}));
    assert_eq!(reply["success"], true, "{reply}");
}
