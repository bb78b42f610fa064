//! The server's reports about itself: `system.metrics`, the mirror of dead letters, the audit.

use serde_json::{Value, json};

use crate::access::{TOKENS, open};
use crate::server::{Server, eventually};
use crate::socket::Socket;

const EARLIEST: &str = r#"{"from": {"kind": "earliest"}}"#;

fn from_the_start() -> Value {
    serde_json::from_str(EARLIEST).expect("JSON")
}

/// Waits until a topic has `count` events, and returns their payloads.
#[track_caller]
fn read(server: &Server, topic: &str, count: usize) -> Vec<Value> {
    let path = format!("/topics/{topic}/events?limit=1000");
    let mut found = Vec::new();
    eventually(&format!("{count} events in {topic}"), || {
        let (status, page) = server.get(&path);
        assert_eq!(status, 200, "{page}");
        found =
            page["events"].as_array().expect("events").iter().map(|event| event["payload"].clone()).collect();
        found.len() >= count
    });
    found
}

/// Publishes an event to `t`, and makes its only group refuse it for good.
fn dead_letter(server: &Server, headers: &Value) -> Socket {
    server.post("/topics", &json!({"topic": "t", "maxAttempts": 1}));
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    socket
        .send(&json!({"type": "PUBLISH", "topic": "t", "payload": {"n": 1}, "key": "k", "headers": headers}));
    let _ = (socket.next(), socket.next());
    socket.send_nack("t", "g", 1, &json!({"reason": "boom"}));
    socket
}

#[test]
fn the_servers_topics_exist_from_the_start_and_keep_a_bounded_past() {
    let mut server = Server::start();
    for restart in [false, true] {
        for topic in ["system.metrics", "system.bus.audit", "system.bus.dlq"] {
            let (status, found) = server.get(&format!("/topics/{topic}"));
            assert_eq!(status, 200, "{topic}");
            let kept = if restart && topic == "system.metrics" { 1000 } else { 86_400_000 };
            assert_eq!((&found["retentionMs"], &found["retentionBytes"]), (&json!(kept), &json!(64 << 20)));
        }
        server.send_json("PATCH", "/topics/system.metrics", &json!({"retentionMs": 1000}));
        server.kill_and_restart();
    }
}

#[test]
fn metrics_come_as_events_and_do_not_count_themselves() {
    let server = Server::with(&["--metrics-interval-ms", "50", "--topic-labels-max", "3"]);
    let mut socket = server.socket();
    socket.subscribe("system.metrics", "watch", &json!({}));
    let mut worker = server.socket();
    worker.subscribe("t", "g", &json!({}));
    for n in 0..3 {
        worker.send(&json!({"type": "PUBLISH", "topic": "t", "payload": n}));
    }
    while worker.next()["offset"] != 3 {}
    worker.send(&json!({"type": "NOPE"}));
    for name in ["u", "v"] {
        server.post(&format!("/topics/{name}/events"), &json!({"payload": 1}));
    }
    let mut last = Value::Null;
    eventually("an event that tells of all that", || {
        let frame = socket.expect("MESSAGE");
        last = frame["envelope"]["payload"].clone();
        socket.send_ack("system.metrics", "watch", 0, frame["offset"].as_u64().expect("an offset"));
        last["published"] == 5 && last["refusals"]["unknown_type"] == 1 && last["system"] != 0
    });
    assert!(last["commits"].as_u64() >= Some(2), "{last}");
    assert_eq!(last["byGroup"]["t"]["g"]["lag"], 3, "{last}");
    // Three names, as limited by the flag, and the rest under one.
    assert_eq!(last["byTopic"].as_object().map(serde_json::Map::len), Some(4), "{last}");
    assert!(last["byTopic"]["(other)"]["pub"].as_u64() >= Some(5), "{last}");
    for name in ["uptimeMs", "inflight", "lag", "connections", "backlogBytes", "outboundBytes"] {
        assert!(last[name].is_u64(), "{name}: {last}");
    }
    assert_eq!(server.get("/stats").1["published"], 5);
}

#[test]
fn metrics_as_events_can_be_turned_off() {
    let server = Server::with(&["--metrics-interval-ms", "0"]);
    assert_eq!(server.get("/topics/system.metrics").0, 200);
    server.post("/topics/t/events", &json!({"payload": 1}));
    let (_, metrics) = server.request("GET", "/metrics", None);
    assert!(metrics.contains("\nmillrace_events_system_total 0\n"), "{metrics}");
}

#[test]
fn dead_letters_are_mirrored_and_a_reader_of_the_mirror_cannot_loop() {
    let mut server = Server::with(&["--max-attempts", "1"]);
    let mut watch = server.socket();
    watch.subscribe("system.bus.dlq", "watch", &from_the_start());
    drop(dead_letter(&server, &json!({"a": "b"})));
    let mirrored = watch.expect("MESSAGE")["envelope"].clone();
    let (_, page) = server.get("/topics/t.DLQ/events");
    for name in ["key", "headers", "payload"] {
        assert_eq!(mirrored[name], page["events"][0][name], "{name}");
    }
    let headers = &mirrored["headers"];
    assert_eq!((&headers["x-dlq-topic"], &headers["x-dlq-reason"]), (&json!("t"), &json!("boom")));
    watch.send_nack("system.bus.dlq", "watch", 1, &json!({}));
    eventually("the reader gave up on it", || server.committed("system.bus.dlq", "watch", 0) == 1);
    watch.expect_nothing();
    server.kill_and_restart();
    assert_eq!(server.get("/topics/system.bus.dlq/offsets").1["partitions"][0]["next"], 2);
    assert_eq!(server.get("/topics/system.bus.dlq.DLQ/offsets").1["partitions"][0]["next"], 2);
}

#[test]
fn without_a_setting_nothing_is_audited() {
    let server = Server::with_config(TOKENS, &[]);
    assert_eq!(server.request_as("eve-secret", "DELETE", "/topics/t", &json!(null)).0, 403);
    let (status, page) =
        server.request_as("root-secret", "GET", "/topics/system.bus.audit/events", &json!(null));
    assert_eq!((status, &page["events"]), (200, &json!([])));
    assert!(server.log().contains("forbidden"), "the log tells it all the same");
}

/// Waits for an audit record of the kind `last`, and returns all records, as an administrator reads them.
fn audited(server: &Server, last: &str) -> Vec<Value> {
    let mut records = Vec::new();
    eventually(&format!("a record of {last}"), || {
        let path = "/topics/system.bus.audit/events?limit=1000";
        let (status, page) = server.request_as("root-secret", "GET", path, &json!(null));
        assert_eq!(status, 200, "{page}");
        records =
            page["events"].as_array().expect("events").iter().map(|event| event["payload"].clone()).collect();
        records.iter().any(|record| record["kind"] == last)
    });
    records
}

#[test]
fn refusals_and_changes_are_audited_if_asked_for() {
    let server = Server::with_config(TOKENS, &["--audit", "refusals,admin"]);
    server.request_as("eve-secret", "GET", "/topics/system.metrics", &json!(null));
    let mut eve = open(&server, "eve-secret");
    eve.send(&json!({"type": "SUBSCRIBE", "topic": "system.bus.audit", "group": "g"}));
    eve.refused("forbidden");
    eve.send(&json!({"type": "PUBLISH", "topic": "system.metrics", "payload": 1}));
    eve.refused("forbidden");
    assert_eq!(server.request_as("eve-secret", "DELETE", "/topics/t", &json!(null)).0, 403);
    assert_eq!(server.request_as("guess", "GET", "/topics", &json!(null)).0, 401);
    server.request_as("root-secret", "POST", "/topics", &json!({"topic": "t"}));
    server.request_as("root-secret", "PATCH", "/topics/t", &json!({"partitions": 2}));
    server.request_as("root-secret", "POST", "/topics/t/events", &json!({"payload": 1}));
    server.request_as("root-secret", "GET", "/topics/t", &json!(null));
    server.request_as("root-secret", "PATCH", "/topics/system.metrics", &json!({"retentionMs": 1000}));
    server.request_as("root-secret", "DELETE", "/topics/t", &json!(null));
    let records = audited(&server, "topic_deleted");
    let told: Vec<_> = records
        .iter()
        .map(|one| format!("{} {} {}", one["kind"], one["agent"], one["topic"]).replace('"', ""))
        .collect();
    let expected = [
        "refused eve t",
        "refused null null",
        "topic_created root t",
        "topic_changed root t",
        "topic_deleted root t",
    ];
    assert_eq!(told, expected, "nothing about system.*, nothing that was not asked for");
    assert_eq!((&records[0]["code"], &records[0]["what"]), (&json!("forbidden"), &json!("DELETE /topics/t")));
    assert!(records.iter().all(|one| one["peer"].is_string() && one["ts"].is_u64()), "{records:?}");
    assert!(!format!("{records:?}").contains("secret"), "no token");
}

#[test]
fn everything_can_be_audited_and_the_audit_does_not_audit_itself() {
    let server = Server::with(&["--audit", "all", "--max-attempts", "2"]);
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    socket.subscribe("system.bus.audit", "watch", &from_the_start());
    let publish = json!({"type": "PUBLISH", "topic": "t", "payload": 1});
    let offset = |frame: Value| frame["offset"].as_u64().expect("an offset");
    let mut worker = server.socket();
    worker.send(&publish);
    worker.expect("PUBLISHED");
    let mut kinds = Vec::new();
    let mut on_t = 0;
    while !kinds.contains(&"acked".to_owned()) {
        let frame = socket.expect("MESSAGE");
        if frame["topic"] == "t" && on_t == 0 {
            on_t = 1;
            socket.send_nack("t", "g", 1, &json!({"reason": "later"}));
        } else if frame["topic"] == "t" {
            socket.send_ack("t", "g", 0, 1);
        } else {
            kinds.push(frame["envelope"]["payload"]["kind"].as_str().expect("a kind").to_owned());
            socket.send_ack("system.bus.audit", "watch", 0, offset(frame));
        }
    }
    let expected = ["subscribed", "published", "nacked", "redelivery", "acked"];
    assert_eq!(kinds, expected, "and none about its own reader");
    let records = read(&server, "system.bus.audit", 5);
    assert_eq!((&records[0]["kind"], &records[0]["group"]), (&json!("subscribed"), &json!("g")));
    let redelivery = &records[3];
    assert_eq!((&redelivery["decision"], &redelivery["attempts"]), (&json!("again"), &json!(1)));
    assert_eq!((&redelivery["why"], &redelivery["offset"]), (&json!("later"), &json!(1)));
    socket.expect_nothing();
}

#[test]
fn an_audit_that_cannot_keep_up_drops_and_counts() {
    let server = Server::with(&["--audit", "publish", "--audit-records-max", "1"]);
    let mut socket = server.socket();
    const EVENTS: u64 = 2000;
    for n in 0..EVENTS {
        socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": n}));
    }
    for _ in 0..EVENTS {
        socket.expect("PUBLISHED");
    }
    eventually("every record is written or counted", || {
        let (_, metrics) = server.request("GET", "/metrics", None);
        let value = |name: &str| -> u64 {
            let line = metrics.lines().find(|line| line.starts_with(&format!("{name} "))).expect("a line");
            line.rsplit(' ').next().and_then(|text| text.parse().ok()).expect("a number")
        };
        let (written, dropped) =
            (value("millrace_audit_events_total"), value("millrace_audit_dropped_total"));
        dropped > 0 && written > 0 && written + dropped == EVENTS
    });
}

#[test]
fn only_those_who_look_after_the_server_read_its_topics() {
    let server = Server::with_config(TOKENS, &["--metrics-interval-ms", "50"]);
    for topic in ["system.metrics", "system.bus.audit", "system.bus.dlq"] {
        let read = |token, path: &str| server.request_as(token, "GET", path, &json!(null)).0;
        for path in [format!("/topics/{topic}"), format!("/topics/{topic}/events")] {
            assert_eq!(read("alice-secret", &path), 403, "{path}");
            assert_eq!(read("root-secret", &path), 200, "{path}");
        }
        let published = server.request_as(
            "root-secret",
            "POST",
            &format!("/topics/{topic}/events"),
            &json!({"payload": 1}),
        );
        assert_eq!(published.0, 403, "nobody writes them: {}", published.1);
    }
    let mut root = open(&server, "root-secret");
    root.subscribe("system.metrics", "g", &json!({}));
    root.expect("MESSAGE");
}
