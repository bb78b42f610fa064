//! The events that an ACK completes, the deliveries that count as attempts, and order per key, through the server.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::server::{Server, eventually};
use crate::socket::Socket;

fn fill(server: &Server, events: u64) {
    let mut socket = server.socket();
    for n in 1..=events {
        socket.publish("t", &json!(n));
    }
}

fn reader(server: &Server, window: u64) -> Socket {
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({"from": {"kind": "earliest"}, "max_inflight": window}));
    socket
}

fn letters(server: &Server, topic: &str) -> Vec<Value> {
    let (_, page) = server.get(&format!("/topics/{topic}.DLQ/events?limit=1000"));
    page["events"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_refused_event_is_tried_again_although_a_later_one_is_acked() {
    let server = Server::with(&["--max-attempts", "3"]);
    fill(&server, 2);
    let mut socket = reader(&server, 2);
    assert_eq!((socket.message(), socket.message()), (1, 2));
    socket.send_nack("t", "g", 1, &json!({}));
    socket.ack("t", "g", 2);
    for attempt in 2..=3 {
        let again = socket.expect("MESSAGE");
        assert_eq!((&again["offset"], &again["envelope"]["attempts"]), (&json!(1), &json!(attempt)));
        assert_eq!(server.committed("t", "g", 0), 0);
        socket.send_nack("t", "g", 1, &json!({"reason": "never"}));
    }
    socket.expect_nothing();
    eventually("the dead letter completes it", || server.committed("t", "g", 0) == 2);
    assert_eq!(letters(&server, "t").len(), 1);
}

#[test]
fn an_event_that_kills_its_consumer_is_the_only_dead_letter() {
    let server = Server::start();
    fill(&server, 32);
    for life in 1..=5 {
        let mut socket = reader(&server, 32);
        let first = socket.expect("MESSAGE");
        assert_eq!(first["offset"], 1);
        assert_eq!(first["envelope"]["attempts"].as_u64().unwrap_or(1), life);
        for offset in 2..=32 {
            let message = socket.expect("MESSAGE");
            assert_eq!(
                (&message["offset"], &message["envelope"]["attempts"]),
                (&json!(offset), &Value::Null)
            );
        }
    }
    let mut socket = reader(&server, 32);
    assert_eq!(socket.message(), 2);
    (3..=32).for_each(|offset| assert_eq!(socket.message(), offset));
    socket.ack("t", "g", 32);
    assert_eq!(server.committed("t", "g", 0), 32);
    assert_eq!(letters(&server, "t").len(), 1);
}

#[test]
fn the_topic_or_the_server_says_what_an_ack_completes() {
    let server = Server::with(&["--ack-mode", "individual"]);
    fill(&server, 2);
    let mut socket = reader(&server, 2);
    assert_eq!((socket.message(), socket.message()), (1, 2));
    socket.ack("t", "g", 2);
    assert_eq!(server.committed("t", "g", 0), 0);
    server.send_json("PATCH", "/topics/t", &json!({"ackMode": "cumulative"}));
    let (_, shown) = server.get("/topics/t");
    assert_eq!(
        (&shown["ackMode"], &shown["defaults"]["ackMode"]),
        (&json!("cumulative"), &json!("individual"))
    );
    fill(&server, 1);
    assert_eq!(socket.message(), 3);
    socket.ack("t", "g", 3);
    assert_eq!(server.committed("t", "g", 0), 3);
}

#[test]
fn each_key_is_handled_in_order_by_one_member_at_a_time() {
    let server = Server::start();
    let mut members: Vec<Socket> = (0..3).map(|_| server.socket()).collect();
    for member in &mut members {
        member.subscribe("t", "g", &json!({"sticky": true, "ack_mode": "individual", "max_inflight": 4}));
    }
    let mut publisher = server.socket();
    for n in 0..60 {
        let key = format!("k{}", n % 5);
        publisher.send(&json!({"type": "PUBLISH", "topic": "t", "payload": n, "key": key}));
        publisher.expect("PUBLISHED");
    }
    let (mut last, mut homes) = (BTreeMap::new(), BTreeMap::new());
    let mut seen = 0;
    while seen < 60 {
        for (which, member) in members.iter_mut().enumerate() {
            let messages = member.drained();
            let mut keys: Vec<_> =
                messages.iter().map(|message| message["envelope"]["key"].clone()).collect();
            keys.sort_by_key(Value::to_string);
            keys.dedup();
            assert_eq!(keys.len(), messages.len(), "one event of a key is in flight: {messages:?}");
            for message in messages {
                let key = message["envelope"]["key"].as_str().expect("a key").to_owned();
                let offset = message["offset"].as_u64().expect("an offset");
                assert_eq!(*homes.entry(key.clone()).or_insert(which), which, "{key} stays with its member");
                assert!(last.insert(key.clone(), offset) < Some(offset), "{key} is in order");
                member.send_ack("t", "g", 0, offset);
                seen += 1;
            }
        }
    }
    eventually("everything is done", || server.committed("t", "g", 0) == 60);
}

fn sticky_member(server: &Server) -> Socket {
    let mut socket = server.socket();
    let options = json!({"from": {"kind": "earliest"}, "sticky": true, "ack_mode": "individual"});
    socket.subscribe("t", "g", &options);
    socket
}

fn publish_keyed(publisher: &mut Socket, key: &Value) {
    publisher.send(&json!({"type": "PUBLISH", "topic": "t", "payload": 1, "key": key}));
    publisher.expect("PUBLISHED");
}

#[test]
fn one_unfinished_event_holds_up_its_key_and_no_other() {
    let server = Server::start();
    let (mut busy, mut idle) = (sticky_member(&server), sticky_member(&server));
    let mut publisher = server.socket();
    (0..300).for_each(|_| publish_keyed(&mut publisher, &json!("hot")));
    publish_keyed(&mut publisher, &json!("cold"));
    publish_keyed(&mut publisher, &Value::Null);
    // Keys are assigned round-robin: hot to the first member, cold to the second, and the event without a key to the
    // first again.
    assert_eq!((busy.message(), idle.message(), busy.message()), (1, 301, 302));
    for offset in 1..300 {
        busy.send_ack("t", "g", 0, offset);
        assert_eq!(busy.message(), offset + 1);
    }
}

#[test]
fn a_member_that_hangs_does_not_make_dead_letters_of_its_keys() {
    let server = Server::with(&["--max-attempts", "2", "--ack-timeout-ms", "300"]);
    let mut hung = sticky_member(&server);
    let mut publisher = server.socket();
    for n in 0..10 {
        publish_keyed(&mut publisher, &json!(format!("k{n}")));
    }
    (1..=10).for_each(|offset| assert_eq!(hung.message(), offset));
    let mut other = sticky_member(&server);
    for _ in 0..10 {
        let message = other.expect("MESSAGE");
        assert_eq!(message["envelope"]["attempts"], 2);
        other.send_ack("t", "g", 0, message["offset"].as_u64().expect("an offset"));
    }
    eventually("everything is done", || server.committed("t", "g", 0) == 10);
    assert_eq!(letters(&server, "t"), Vec::<Value>::new());
}
