//! `event/bus` of guests beside a server.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::run::run;
use crate::server::{Server, eventually};
use crate::stage::{Running, compiled, connect};

const TOKENS: &str = r#"
[[auth.tokens]]
token = "root"
agent = "root"
scopes = ["admin"]

[[auth.tokens]]
token = "guest"
agent = "guest"
scopes = ["publish", "subscribe"]
"#;

/// Starts a guest that is subscribed to `topic`.
fn gather(server: &Server, topic: &str, flags: &[&str]) -> Running {
    let mut guest = start_gather(server, topic, flags);
    assert_eq!(guest.line(), "subscribed\n");
    guest
}

fn start_gather(server: &Server, topic: &str, flags: &[&str]) -> Running {
    let url = server.ws_url();
    let words = [&["--allow", "event/bus", "--url", &url], flags, &["--", topic]].concat();
    Running::start(&compiled("gather"), &words)
}

/// Sends the guest a line, and returns the line that it answers.
fn tell(guest: &mut Running, line: &str) -> String {
    writeln!(guest.stdin(), "{line}").unwrap();
    guest.line()
}

fn publish(server: &Server, topic: &str, payload: &Value) {
    let (status, answer) = server.post(&format!("/topics/{topic}/events"), &json!({ "payload": payload }));
    assert!(status < 300, "{answer}");
}

fn groups(server: &Server, topic: &str) -> Vec<String> {
    let (_, list) = server.get(&format!("/topics/{topic}/groups"));
    let groups = list["groups"].as_array().cloned().unwrap_or_default();
    groups.iter().map(|group| group["group"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_a_guest_publishes_is_stored_and_what_others_publish_reaches_it() {
    let server = Server::start();
    let mut guest = gather(&server, "orders", &[]);
    assert_eq!(tell(&mut guest, r#"say {"n": 1}"#), "published to 1\n");
    assert_eq!(tell(&mut guest, "take 1"), "{\"n\": 1}\n", "a guest hears itself");
    publish(&server, "orders", &json!({ "n": 2 }));
    assert_eq!(tell(&mut guest, "take 1"), "{\"n\":2}\n");
    assert_eq!(tell(&mut guest, "say plain words"), "published to 1\n");
    assert_eq!(tell(&mut guest, "take 1"), "plain words\n");
    // Other readers of the topic find JSON in every event.
    let out = run(&[
        "sub",
        "orders",
        "--group",
        "g",
        "--from",
        "earliest",
        "--count",
        "3",
        "--url",
        &server.ws_url(),
    ]);
    assert_eq!(out.ok(), "{\"n\": 1}\n{\"n\":2}\n\"plain words\"\n");
}

#[test]
fn a_guest_without_a_group_leaves_nothing_behind() {
    let server = Server::start();
    let mut guest = gather(&server, "t", &[]);
    let joined = groups(&server, "t");
    assert!(joined.len() == 1 && joined[0].starts_with("guest-"), "{joined:?}");
    assert_eq!(tell(&mut guest, "leave"), "left\n");
    eventually("the group of a subscription that ended is deleted", || groups(&server, "t").is_empty());
    drop(guest);
    for signal in ["INT", "TERM"] {
        let guest = gather(&server, "t", &[]);
        assert_eq!(groups(&server, "t").len(), 1);
        assert_eq!(guest.interrupt(signal).code, Some(130));
        assert_eq!(groups(&server, "t"), Vec::<String>::new(), "after SIG{signal}");
    }
    let mut guest = gather(&server, "t", &[]);
    guest.close_stdin();
    assert_eq!(guest.end().code, Some(0));
    assert_eq!(groups(&server, "t"), Vec::<String>::new(), "after the guest's own end");
}

#[test]
fn a_group_keeps_what_the_guest_has_not_read() {
    let server = Server::start();
    let in_group = ["--group", "g"];
    let mut guest = gather(&server, "t", &in_group);
    for n in 0..4 {
        publish(&server, "t", &json!(n));
    }
    assert_eq!(tell(&mut guest, "take 2"), "0\n");
    assert_eq!(guest.line(), "1\n");
    eventually("what was read is acknowledged", || server.committed("t", "g", 0) == 2);
    // The other events are in the guest's queue, and the guest has not read them.
    guest.kill();
    publish(&server, "t", &json!(4));
    let mut guest = gather(&server, "t", &in_group);
    assert_eq!(tell(&mut guest, "take 3"), "2\n");
    assert_eq!((guest.line(), guest.line()), ("3\n".to_owned(), "4\n".to_owned()));
    assert_eq!(guest.interrupt("TERM").code, Some(130));
    assert_eq!(server.committed("t", "g", 0), 5, "all that was read is acknowledged before the end");
    assert_eq!(groups(&server, "t"), ["g"]);
}

#[test]
fn a_guest_that_does_not_read_loses_nothing() {
    let server = Server::start();
    let mut guest = gather(&server, "t", &["--group", "g"]);
    // Three times what fits the guest's queue, and more events than the server sends ahead.
    let text = "x".repeat(9_998);
    for _ in 0..300 {
        publish(&server, "t", &json!(text));
    }
    assert_eq!(tell(&mut guest, "count 300"), "3000000 bytes\n");
    eventually("everything is acknowledged", || server.committed("t", "g", 0) == 300);
    assert_eq!(server.get("/topics/t.DLQ").0, 404, "nothing was given up");
}

#[test]
fn two_chat_servers_beside_one_server_are_one_room() {
    let server = Server::start();
    let url = server.ws_url();
    let flags = ["--net", "loopback", "--allow", "event/bus", "--url", &url];
    let (_one, first) = Running::listening("chat", &flags);
    let (_two, second) = Running::listening("chat", &flags);
    let mut clients: Vec<_> =
        [&first, &first, &second, &second].map(|address| BufReader::new(connect(address))).into();
    let next = |client: &mut BufReader<TcpStream>| {
        let mut line = Vec::new();
        client.read_until(b'\n', &mut line).unwrap();
        line
    };
    for client in &mut clients {
        assert_eq!(next(client), b"welcome\n");
    }
    // Also lines that are JSON, and lines that are not even text.
    for (speaker, line) in [&b"hello\n"[..], b"42\n", b"\xff\x00\xfe\n", b"{\"a\": 1}\n"].iter().enumerate() {
        clients[speaker].get_mut().write_all(line).unwrap();
        for client in &mut clients {
            assert_eq!(next(client), *line);
        }
    }
}

#[test]
fn a_guest_outlives_the_end_of_its_server() {
    let mut server = Server::start();
    let mut guest = gather(&server, "t", &["--group", "g"]);
    publish(&server, "t", &json!("before"));
    assert_eq!(tell(&mut guest, "take 1"), "\"before\"\n");
    server.kill();
    server.restart_at_its_port();
    assert_eq!(tell(&mut guest, "say after"), "published to 1\n");
    // An event that was read just before the end may come twice.
    let mut line = tell(&mut guest, "take 1");
    if line == "\"before\"\n" {
        line = tell(&mut guest, "take 1");
    }
    assert_eq!(line, "after\n");
}

#[test]
fn a_server_that_is_gone_for_good_hangs_up() {
    let mut server = Server::start();
    let mut guest = gather(&server, "t", &["--reconnect-ms", "0"]);
    server.kill();
    assert_eq!(tell(&mut guest, "take 1"), "gone\n");
    let ran = guest.end();
    assert_eq!(ran.code, Some(6));
    assert!(ran.stderr.contains("hears nothing of this topic any more"), "{}", ran.stderr);
}

#[test]
fn an_event_that_no_frame_can_carry_becomes_a_dead_letter() {
    let server = Server::with(&["--max-attempts", "2"]);
    let mut guest = gather(&server, "t", &["--group", "g"]);
    publish(&server, "t", &json!("x".repeat(60_000)));
    publish(&server, "t", &json!("short"));
    assert_eq!(tell(&mut guest, "take 1"), "\"short\"\n");
    eventually("the long one is a dead letter", || server.committed("t", "g", 0) == 2);
    let (_, letters) = server.get("/dead-letters?topic=t");
    assert!(letters.to_string().contains("too long for a guest"), "{letters}");
}

#[test]
fn refusals_of_the_server_are_error_frames() {
    let server = Server::with_config(TOKENS, &[]);
    let make = |config: Value| assert_eq!(server.request_as("root", "POST", "/topics", &config).0, 201);
    make(json!({ "topic": "closed", "publishACL": [] }));
    make(json!({ "topic": "numbers", "schema": { "type": "number" } }));
    let mut guest = gather(&server, "closed", &["--token", "guest"]);
    assert_eq!(tell(&mut guest, "say x"), "error: t_event_bus_denied: topic denied\n");
    let mut guest = gather(&server, "numbers", &["--token", "guest"]);
    let line = tell(&mut guest, "say x");
    assert!(line.starts_with("error: t_event_bus_refused: ") && line.contains("schema"), "{line}");
    assert_eq!(tell(&mut guest, "say 1"), "published to 1\n", "the next good request works");
    let ran = guest.interrupt("TERM");
    assert_eq!(ran.code, Some(130));
    // Deleting a group needs a scope that this guest's token lacks: the group stays, and a warning says so.
    assert!(ran.stderr.contains("the guest's group was not deleted"), "{}", ran.stderr);
    let ran = start_gather(&server, "t", &[]).end();
    assert_eq!(ran.code, Some(5));
    assert!(ran.stdout.contains("unauthorized"), "{}", ran.stdout);
    let server = Server::start();
    let mut refused = start_gather(&server, "no..name", &[]);
    let line = refused.line();
    assert!(line.starts_with("error: t_event_bus_refused: topic has an empty dot segment"), "{line}");
    assert_eq!(refused.end().code, Some(5));
}

#[test]
fn a_publish_that_waits_ends_with_the_guest_and_in_time() {
    let server = Server::start();
    let mut guest = gather(&server, "t", &[]);
    server.signal("STOP");
    assert_eq!(tell(&mut guest, "say x"), "error: t_event_bus_internal: no answer within 5000 ms\n");
    writeln!(guest.stdin(), "say y").unwrap();
    assert_eq!(guest.interrupt("TERM").code, Some(130));
    server.signal("CONT");
}

#[test]
fn wrong_usage_is_told() {
    let flags = |flags: &[&str]| run(&[&["guest", &compiled("gather")], flags, &["--", "t"]].concat());
    flags(&["--allow", "event/bus", "--group", "g"]).refused(2, &["group is given without url"]);
    flags(&["--url", "ws://127.0.0.1:1/"]).refused(2, &["--allow event/bus"]);
    flags(&["--allow", "event/bus", "--group", "a..b", "--url", "ws://127.0.0.1:1/"])
        .refused(2, &["group has an empty dot segment"]);
    flags(&["--allow", "event/bus", "--url", "ws://127.0.0.1:1/"]).refused(3, &["cannot reach"]);
}
