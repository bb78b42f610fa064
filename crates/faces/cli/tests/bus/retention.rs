//! Retention seen by clients: what is removed, what a group that was behind is told, and that it catches up.

use serde_json::{Value, json};

use crate::server::{Server, eventually};

const EVENTS: u64 = 100;
const PAYLOAD_BYTES: u64 = 1000;

/// Returns a server whose topic `t` has a group `g` that never read anything, and `EVENTS` events. The retention rule
/// is set after them, so that it removes everything at once.
fn behind(rule: &Value) -> Server {
    let server = Server::with(&["--retention-interval-ms", "20"]);
    assert_eq!(server.post("/topics", &json!({"topic": "t"})).0, 201);
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({"from": {"kind": "earliest"}}));
    drop(socket);
    let mut socket = server.socket();
    for _ in 0..EVENTS {
        socket.publish("t", &json!("x".repeat(PAYLOAD_BYTES as usize)));
    }
    assert_eq!(server.send_json("PATCH", "/topics/t", rule).0, 200);
    server
}

fn row(server: &Server) -> Value {
    server.get("/topics/t/offsets").1["partitions"][0].clone()
}

fn done_at(committed: u64) -> Value {
    json!({"committed": committed, "updatedTs": null, "lag": 0, "inflight": 0})
}

/// Returns the progress of the group, without the time of its last change.
fn progress(server: &Server) -> Value {
    let mut group = row(server)["groups"]["g"].clone();
    assert!(group["updatedTs"].take().as_u64().is_some());
    group
}

fn skipped(server: &Server) -> u64 {
    server.get("/stats").1["skipped"].as_u64().expect("a counter")
}

#[test]
fn retention_by_bytes_removes_the_oldest_and_keeps_what_has_room() {
    const KEPT_MAX: u64 = 10;
    let mut server = behind(&json!({"retentionBytes": KEPT_MAX * PAYLOAD_BYTES}));
    let start = |server: &Server| row(server)["start"].as_u64().expect("a start");
    eventually("only what has room is left", || start(&server) > EVENTS - KEPT_MAX);
    // Retention keeps as much as fits, not less: an event takes its payload and well under as much again.
    let first = start(&server);
    assert!(first <= EVENTS - KEPT_MAX / 2, "only {} of {KEPT_MAX} are left", EVENTS + 1 - first);
    let (_, page) = server.get("/topics/t/events?from=1");
    let offsets: Vec<u64> = page["events"]
        .as_array()
        .expect("events")
        .iter()
        .map(|event| event["offset"].as_u64().expect("an offset"))
        .collect();
    assert!(offsets.into_iter().eq(first..=EVENTS), "{page}");
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    (first..=EVENTS).for_each(|offset| assert_eq!(socket.message(), offset));
    eventually("the group passes what is gone", || server.committed("t", "g", 0) == first - 1);
    assert_eq!(skipped(&server), first - 1, "and it is counted");
    assert_eq!(row(&server)["groups"]["g"]["lag"], EVENTS - (first - 1));
    server.kill_and_restart();
    assert_eq!((start(&server), server.committed("t", "g", 0)), (first, first - 1));
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    (first..=EVENTS).for_each(|offset| assert_eq!(socket.message(), offset));
    socket.ack("t", "g", EVENTS);
    assert_eq!(progress(&server), done_at(EVENTS));
    assert_eq!(skipped(&server), 0, "nothing is skipped twice");
}

#[test]
fn a_group_that_was_behind_is_at_the_end_when_retention_removed_everything() {
    let mut server = behind(&json!({"retentionMs": 1}));
    eventually("everything is gone", || row(&server)["start"] == EVENTS + 1);
    // The group learns of it when a member reads again.
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    let done = done_at(EVENTS);
    eventually("the group is at the end", || progress(&server) == done);
    assert_eq!(skipped(&server), EVENTS, "all of it counts as skipped");
    socket.expect_nothing();
    server.kill_and_restart();
    let after = row(&server);
    assert_eq!((&after["start"], progress(&server)), (&json!(EVENTS + 1), done), "{after}");
    assert_eq!(skipped(&server), 0, "nothing is skipped twice");
}

#[test]
fn what_a_member_holds_when_retention_removes_it_can_still_be_acked() {
    let server = Server::with(&["--retention-interval-ms", "20"]);
    assert_eq!(server.post("/topics", &json!({"topic": "t"})).0, 201);
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({"max_inflight": 2}));
    let mut publisher = server.socket();
    for n in 1..=10 {
        publisher.publish("t", &json!(n));
    }
    assert_eq!((socket.message(), socket.message()), (1, 2));
    assert_eq!(server.send_json("PATCH", "/topics/t", &json!({"retentionMs": 1})).0, 200);
    eventually("everything is gone", || row(&server)["start"] == 11);
    socket.ack("t", "g", 2);
    // Events already in memory may still come; removed events are skipped.
    let done = done_at(10);
    eventually("the group is at the end", || {
        let came: Vec<_> = socket.drained().iter().filter_map(|frame| frame["offset"].as_u64()).collect();
        came.into_iter().for_each(|offset| socket.send_ack("t", "g", 0, offset));
        progress(&server) == done
    });
}
