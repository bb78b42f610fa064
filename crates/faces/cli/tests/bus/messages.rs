//! MESSAGES frames: several events at a time, for those who asked.

use serde_json::{Value, json};

use crate::server::Server;
use crate::socket::Socket;

fn reader(server: &Server, wishes: &Value) -> Socket {
    let mut socket = server.socket();
    socket.subscribe("t", "g", wishes);
    socket
}

fn fill(server: &Server, topic: &str, events: u64) {
    let batch: Vec<_> = (1..=events).map(|n| json!({"payload": n, "key": "k"})).collect();
    let (status, _) = server.post(&format!("/topics/{topic}/events"), &json!(batch));
    assert_eq!(status, 200);
}

/// The envelopes of MESSAGES frames until there are `count`.
fn envelopes(socket: &mut Socket, count: usize, batch_max: usize) -> Vec<Value> {
    let mut all = Vec::new();
    while all.len() < count {
        let frame = socket.expect("MESSAGES");
        let envelopes = frame["envelopes"].as_array().expect("an array").clone();
        assert!((1..=batch_max).contains(&envelopes.len()), "{frame}");
        for envelope in &envelopes {
            assert_eq!((&envelope["topic"], &envelope["partition"]), (&frame["topic"], &frame["partition"]));
        }
        all.extend(envelopes);
    }
    assert_eq!(all.len(), count);
    all
}

fn offsets(envelopes: &[Value]) -> Vec<u64> {
    envelopes.iter().map(|envelope| envelope["offset"].as_u64().expect("an offset")).collect()
}

#[test]
fn a_backlog_comes_in_few_frames_and_every_event_is_acknowledged_by_itself() {
    let server = Server::start();
    fill(&server, "t", 500);
    let wishes =
        json!({"from": {"kind": "earliest"}, "max_inflight": 500, "batch_max": 50, "ack_mode": "individual"});
    let mut socket = reader(&server, &wishes);
    let mut got = Vec::new();
    let mut frames = 0;
    while got.len() < 500 {
        let frame = socket.expect("MESSAGES");
        got.extend(frame["envelopes"].as_array().expect("an array").clone());
        frames += 1;
    }
    assert_eq!(offsets(&got), (1..=500).collect::<Vec<_>>());
    assert!(frames <= 50, "{frames} frames for 500 events");
    assert_eq!(got[41]["payload"], 42);
    // The window is full; one acknowledgement makes room for one event.
    fill(&server, "t", 1);
    socket.expect_nothing();
    socket.ack("t", "g", 7);
    assert_eq!(offsets(&envelopes(&mut socket, 1, 50)), [501]);
    // Refused events come again in such frames, too.
    socket.send(&json!({"type": "NACK", "topic": "t", "partition": 0, "group": "g", "offset": 9}));
    let again = envelopes(&mut socket, 1, 50);
    assert_eq!((&again[0]["offset"], &again[0]["attempts"]), (&json!(9), &json!(2)));
}

/// A lost connection gives back what its frames held.
#[test]
fn events_of_a_frame_whose_reader_is_gone_go_to_another_member() {
    let server = Server::start();
    fill(&server, "t", 20);
    let mut first = reader(&server, &json!({"from": {"kind": "earliest"}, "batch_max": 20}));
    envelopes(&mut first, 20, 20);
    drop(first);
    let mut second = reader(&server, &json!({}));
    let all: Vec<_> = (0..20).map(|_| second.message()).collect();
    assert_eq!(all, (1..=20).collect::<Vec<_>>());
}

#[test]
fn only_the_subscription_that_asked_gets_such_frames() {
    let server = Server::start();
    let mut socket = reader(&server, &json!({"batch_max": 10}));
    socket.subscribe("t", "plain", &json!({}));
    socket.subscribe("t", "one", &json!({"batch_max": 1}));
    fill(&server, "t", 1);
    let mut kinds: Vec<_> = (0..3)
        .map(|_| {
            let frame = socket.next();
            (frame["group"].as_str().expect("a group").to_owned(), frame["type"].clone())
        })
        .collect();
    kinds.sort_by(|a, b| a.0.cmp(&b.0));
    let kind = |group: &str, kind: &str| (group.to_owned(), json!(kind));
    assert_eq!(kinds, [kind("g", "MESSAGES"), kind("one", "MESSAGE"), kind("plain", "MESSAGE")]);
    // A second SUBSCRIBE without the wish takes it back.
    socket.subscribe("t", "g", &json!({}));
    fill(&server, "t", 1);
    let types: Vec<_> = (0..3).map(|_| socket.next()["type"].clone()).collect();
    assert_eq!(types, [json!("MESSAGE"), json!("MESSAGE"), json!("MESSAGE")]);
}

/// Each event of a frame uses one credit.
#[test]
fn credits_count_events_and_not_frames() {
    let server = Server::start();
    let mut socket = server.socket();
    socket.send(&json!({"type": "FLOW", "credits": 3, "rid": 1}));
    socket.expect("OK");
    socket.subscribe("t", "g", &json!({"batch_max": 10, "from": {"kind": "earliest"}}));
    fill(&server, "t", 5);
    assert_eq!(offsets(&envelopes(&mut socket, 3, 10)), [1, 2, 3]);
    socket.expect_nothing();
    socket.send(&json!({"type": "FLOW", "credits": 9}));
    assert_eq!(offsets(&envelopes(&mut socket, 2, 10)), [4, 5]);
}
