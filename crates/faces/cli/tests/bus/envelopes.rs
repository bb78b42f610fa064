//! The fields of envelopes, pages and offsets beside the event itself, and the limits of a batch.

use std::process::Command;

use serde_json::{Value, json};

use crate::server::{Server, eventually};
use crate::socket::Socket;

/// The SHA-256 of `{"a": 1}`, as it is written below.
const DIGEST: &str = "f9d86028c6e0d64e225186f96acb69338b2c59764df79162107f5c4bb34d1310";

#[test]
fn priority_is_shown_where_it_is_not_the_default() {
    let server = Server::start();
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    for priority in [json!(7), json!(100), json!(-1)] {
        let published = server.post("/topics/t/events", &json!({"payload": 1, "priority": priority}));
        assert_eq!(published.0, 200, "{published:?}");
    }
    let shown = [json!(7), Value::Null, json!(-1)];
    let delivered: Vec<Value> = (0..3).map(|_| socket.next()["envelope"]["priority"].clone()).collect();
    assert_eq!(delivered, shown);
    let (_, page) = server.get("/topics/t/events");
    let listed: Vec<Value> = (0..3).map(|at| page["events"][at]["priority"].clone()).collect();
    assert_eq!(listed, shown);
}

#[test]
fn the_digest_of_payloads_is_given_to_those_who_ask_for_it() {
    let server = Server::start();
    let (mut author, mut plain) = (server.socket(), server.socket());
    let mut asking = Socket::open(&format!("{}?payload_sha256=true", server.ws_url()));
    plain.subscribe("t", "plain", &json!({}));
    asking.subscribe("t", "asking", &json!({}));
    author.send_text(r#"{"type":"PUBLISH","topic":"t","payload":{"a": 1}}"#);
    let digest = asking.next()["envelope"]["payload_sha256"].clone();
    assert_eq!(digest, DIGEST, "over the bytes as they were sent, blanks included");
    assert_eq!(plain.expect("MESSAGE")["envelope"]["payload_sha256"], Value::Null);
    let (_, page) = server.get("/topics/t/events?payload_sha256=true");
    assert_eq!(page["events"][0]["payload_sha256"], DIGEST);
    let (_, page) = server.get("/topics/t/events");
    assert_eq!(page["events"][0]["payload_sha256"], Value::Null);
    let (status, refused) = server.get("/topics/t/events?payload_sha256=yes");
    assert_eq!((status, &refused["code"]), (400, &json!("bad_frame")));
}

#[test]
fn offsets_say_when_the_commit_of_a_group_became_what_it_is() {
    let mut server = Server::start();
    let updated = |server: &Server| {
        let (_, offsets) = server.get("/topics/t/offsets");
        offsets["partitions"][0]["groups"]["g"]["updatedTs"].as_u64().expect("a time")
    };
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({"ack_mode": "individual"}));
    let begun = updated(&server);
    server.post("/topics/t/events", &json!([{"payload": 1}, {"payload": 2}, {"payload": 3}]));
    let ts = (1..=3).map(|_| socket.next()["envelope"]["ts"].as_u64().expect("a time")).max().expect("some");
    assert!(begun <= ts);
    // An ack ahead of the commit does not move the commit.
    socket.ack("t", "g", 3);
    assert_eq!(updated(&server), begun);
    socket.ack("t", "g", 1);
    let moved = updated(&server);
    assert!(moved >= ts, "{moved} is before {ts}, when the event was stored");
    server.kill_and_restart();
    assert_eq!((server.committed("t", "g", 0), updated(&server)), (1, moved));
}

#[test]
fn a_batch_of_too_many_events_is_answered_as_documented_and_leaves_nothing() {
    let server = Server::with(&["--batch-events-max", "2"]);
    let events = json!([{"payload": 1}, {"payload": 2}, {"payload": 3}]);
    let (status, refused) = server.post("/topics/t/events", &events);
    assert_eq!((status, &refused["code"]), (413, &json!("limit_reached")));
    assert_eq!(refused["detail"], "the batch holds 3 events: at most 2 are allowed");
    let mut socket = server.socket();
    socket.send(&json!({"type": "PUBLISH_BATCH", "topic": "t", "events": events}));
    socket.refused("limit_reached");
    assert_eq!(server.get("/topics/t").0, 404);
    assert_eq!(server.post("/topics/t/events", &json!([{"payload": 1}, {"payload": 2}])).0, 200);
}

#[test]
fn the_start_of_a_stream_that_another_process_cleaned_up_is_told() {
    let server = Server::start();
    for n in 1..=5 {
        server.post("/topics/t/events", &json!({"payload": n}));
    }
    let bounds = |server: &Server| {
        let (_, offsets) = server.get("/topics/t/offsets");
        let at = &offsets["partitions"][0];
        (at["start"].as_u64().expect("a start"), at["next"].as_u64().expect("an end"))
    };
    assert_eq!(bounds(&server), (1, 6));
    let cleaned = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["events", "cleanup", "--before", "0m", "--all", "--yes", "--store", &server.store_url()])
        .output()
        .expect("a process");
    assert!(cleaned.status.success(), "{cleaned:?}");
    eventually("the server learns of it", || bounds(&server) == (6, 6));
    // A group from the earliest offset begins at the first event that can still come.
    let mut socket = server.socket();
    let joined = socket.subscribe("t", "g", &json!({"from": {"kind": "earliest"}}));
    assert_eq!(joined["partitions"], json!([{"partition": 0, "next": 6}]));
}
