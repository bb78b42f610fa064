//! Event ids set by publishers: an id stands for one event during the whole deduplication window.

use serde_json::{Value, json};

use crate::server::{Server, eventually};

fn publish(server: &Server, event: &Value) -> Value {
    let (status, answer) = server.post("/topics/t/events", event);
    assert_eq!(status, 200, "{answer}");
    answer
}

fn payloads(server: &Server) -> Vec<Value> {
    let (status, page) = server.get("/topics/t/events?limit=1000");
    assert_eq!(status, 200, "{page}");
    page["events"].as_array().expect("events").iter().map(|event| event["payload"].clone()).collect()
}

#[test]
fn a_confirmed_delayed_event_is_delivered_whatever_is_published_under_its_id() {
    let mut server = Server::start();
    let first = publish(&server, &json!({"payload": "late", "id": "x", "delay_ms": 2500}));
    assert!(first["due"].is_u64() && first["offset"].is_null(), "{first}");
    assert_eq!(publish(&server, &json!({"payload": "now", "id": "x"})), first, "answered like the first");
    server.kill_and_restart();
    assert_eq!(publish(&server, &json!({"payload": "later", "id": "x", "delay_ms": 60_000})), first);
    let mut socket = server.socket();
    socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": "ws", "id": "x"}));
    assert_eq!(socket.expect("PUBLISHED")["due"], first["due"]);
    let batch =
        publish(&server, &json!([{"payload": 1}, {"payload": 2, "id": "x"}, {"payload": 3, "id": "y"}]));
    assert_eq!(batch["offsets"], json!([[0, 1], [0, 0], [0, 2]]));
    eventually("the delayed event arrives", || payloads(&server) == [json!(1), json!(3), json!("late")]);
    for event in [json!({"payload": 4, "id": "x"}), json!({"payload": 5, "id": "x", "delay_ms": 60_000})] {
        let again = publish(&server, &event);
        assert_eq!((&again["offset"], &again["due"]), (&json!(3), &Value::Null), "{again}");
    }
    let stored = publish(&server, &json!({"payload": 6, "id": "y", "delay_ms": 50}));
    assert_eq!(stored["offset"], 2, "{stored}");
}

#[test]
fn an_id_stays_taken_although_compaction_removed_its_event() {
    let flags = ["--compact-interval-ms", "50", "--tombstone-ms", "0", "--maintain-interval-ms", "1"];
    let mut server = Server::with(&flags);
    assert_eq!(server.post("/topics", &json!({"topic": "t", "compact": true})).0, 201);
    let old = json!({"payload": "old", "key": "k", "id": "a"});
    assert_eq!(publish(&server, &old)["offset"], 1);
    publish(&server, &json!({"payload": "new", "key": "k", "id": "b"}));
    publish(&server, &json!({"payload": null, "key": "dead", "id": "c"}));
    for n in 0..50 {
        publish(&server, &json!({"payload": n, "key": "filler"}));
    }
    eventually("only the newest are left", || payloads(&server) == [json!("new"), json!(49)]);
    for _ in 0..2 {
        assert_eq!(publish(&server, &old)["offset"], 1, "answered with the first offset");
        assert_eq!(publish(&server, &json!({"payload": "back", "key": "dead", "id": "c"}))["offset"], 3);
        server.kill_and_restart();
    }
    assert_eq!(payloads(&server), [json!("new"), json!(49)]);
}

#[test]
fn an_id_stays_taken_although_retention_removed_its_event() {
    let flags = ["--retention-interval-ms", "20", "--maintain-interval-ms", "1"];
    let mut server = Server::with(&flags);
    assert_eq!(server.post("/topics", &json!({"topic": "t", "retentionMs": 100})).0, 201);
    assert_eq!(publish(&server, &json!({"payload": 1, "id": "a"}))["offset"], 1);
    eventually("retention removes it", || payloads(&server).is_empty());
    for _ in 0..2 {
        assert_eq!(publish(&server, &json!({"payload": 2, "id": "a"}))["offset"], 1);
        server.kill_and_restart();
    }
    assert_eq!(publish(&server, &json!({"payload": 3, "id": "b"}))["offset"], 2);
}
