//! The frames on the socket match the AsyncAPI description that the server serves.

use serde_json::{Value, json};

use crate::server::Server;

/// Checks a frame against every shape of its type; one must fit, without additional fields.
#[track_caller]
fn check(document: &Value, frame: &Value) {
    let messages = document["components"]["messages"].as_object().expect("messages");
    let of_type: Vec<&Value> = messages.values().filter(|message| message["name"] == frame["type"]).collect();
    assert!(!of_type.is_empty(), "{frame} is of no known type");
    let fits = |message: &&Value| {
        let mut schema = message["payload"].clone();
        schema["components"] = json!({"schemas": document["components"]["schemas"]});
        schema["unevaluatedProperties"] = json!(false);
        jsonschema::draft202012::is_valid(&schema, frame)
    };
    assert!(of_type.iter().any(fits), "{frame} fits no description");
}

#[test]
fn the_frames_of_a_running_server_are_as_described() {
    let server = Server::start();
    let (status, document) = server.get("/asyncapi.json");
    assert_eq!((status, &document["asyncapi"]), (200, &json!("3.0.0")));
    let mut socket = server.socket();
    let sent = [
        json!({"type": "SUBSCRIBE", "topic": "t", "group": "g", "max_inflight": 8, "ack_mode": "individual", "rid": 1}),
        json!({"type": "SUBSCRIBE", "topic": "t", "group": "several", "batch_max": 10, "rid": 10}),
        json!({"type": "PUBLISH", "topic": "t", "payload": {"a": 1}, "key": "k", "headers": {"h": "v"}, "id": "i", "rid": "r"}),
        json!({"type": "PUBLISH", "topic": "t", "payload": 1, "delay_ms": 3_600_000}),
        json!({"type": "PUBLISH_BATCH", "topic": "t", "events": [{"payload": 2}, {"payload": 3}], "rid": 2}),
        json!({"type": "NACK", "topic": "t", "partition": 0, "group": "g", "offset": 1, "reason": "again", "rid": 3}),
        json!({"type": "ACK", "topic": "t", "partition": 0, "group": "g", "offset": 2, "rid": 4}),
        json!({"type": "FLOW", "credits": 10, "rid": 5}),
        json!({"type": "PING", "rid": 6}),
        json!({"type": "AUTH", "token": "x", "rid": 7}),
        json!({"type": "ACK", "topic": "t", "partition": 0, "group": "g", "offset": 99, "rid": 8}),
        json!({"type": "PUBLISH", "topic": "a..b", "payload": 1}),
        json!({"type": "HELLO"}),
        json!({"type": "UNSUBSCRIBE", "topic": "t", "group": "g", "rid": 9}),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for frame in &sent {
        if frame["type"] != "HELLO" && frame["topic"] != "a..b" {
            check(&document, frame);
        }
        socket.send(frame);
        // A publish to the group's own topic is both answered and delivered, in either order.
        let (mut answered, mut delivered) = (false, frame["rid"] != "r");
        while !(answered && delivered) {
            let got = socket.next();
            check(&document, &got);
            seen.insert(got["type"].as_str().expect("a type").to_owned());
            delivered |= got["type"] == "MESSAGE";
            let is_delivery = got["type"] == "MESSAGE" || got["type"] == "MESSAGES";
            answered |= !is_delivery && got.get("rid") == frame.get("rid");
        }
    }
    let expected = ["ERROR", "MESSAGE", "MESSAGES", "OK", "PONG", "PUBLISHED"].map(str::to_owned);
    assert_eq!(seen, expected.into());
}
