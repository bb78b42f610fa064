//! Little memory, frames that do not wait for answers, filters that change in between: order and guarantees hold.

use std::collections::BTreeMap;

use serde_json::json;

use crate::server::Server;
use crate::socket::Socket;

/// Groups fall so far behind that memory no longer holds their events: every event still arrives, in the order of its
/// topic.
fn slow_groups_miss_nothing(flag: &str, bytes: &str) {
    const TOPICS: u64 = 20;
    const EVENTS: u64 = 40;
    // A long ack timeout: nothing is acknowledged during publishing, which takes a while on a busy machine.
    let server = Server::with(&[flag, bytes, "--ack-timeout-ms", "3600000"]);
    let mut slow = server.socket();
    for n in 0..TOPICS {
        slow.subscribe(&format!("t{n}"), "g", &json!({"max_inflight": 2}));
    }
    let mut publisher = server.socket();
    for offset in 1..=EVENTS {
        for n in 0..TOPICS {
            assert_eq!(publisher.publish(&format!("t{n}"), &json!("x".repeat(200))), offset);
        }
    }
    let mut next: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..TOPICS * EVENTS {
        let message = slow.expect("MESSAGE");
        let topic = message["topic"].as_str().expect("a topic").to_owned();
        let expected = next.entry(topic.clone()).or_insert(1);
        assert_eq!(message["offset"], *expected, "{message}");
        slow.send_ack(&topic, "g", 0, *expected);
        *expected += 1;
    }
    slow.expect_nothing();
    assert!(next.len() as u64 == TOPICS && next.values().all(|next| *next == EVENTS + 1), "{next:?}");
}

#[test]
fn slow_groups_of_many_topics_miss_nothing_when_the_memory_of_all_tails_is_tiny() {
    slow_groups_miss_nothing("--tail-bytes-total-max", "1000");
}

#[test]
fn slow_groups_of_many_topics_miss_nothing_when_the_memory_of_each_tail_is_tiny() {
    slow_groups_miss_nothing("--tail-bytes-max", "300");
}

#[test]
fn subscriptions_that_do_not_wait_for_each_other_are_counted_all_the_same() {
    let server = Server::with(&["--subscriptions-per-connection-max", "4"]);
    let mut socket = server.socket();
    for n in 0..10 {
        socket.send(&json!({"type": "SUBSCRIBE", "topic": format!("t{n}"), "group": "g", "rid": n}));
    }
    let mut answers: Vec<_> = (0..10).map(|_| socket.next()).collect();
    answers.sort_by_key(|answer| answer["rid"].as_u64());
    for (n, answer) in answers.iter().enumerate() {
        let told = answer.get("code").unwrap_or(&answer["type"]);
        assert_eq!(*told, if n < 4 { "OK" } else { "limit_reached" }, "{answers:?}");
    }
    let (_, stats) = server.get("/stats");
    assert_eq!(stats["subscriptions"], 4, "{stats}");
    // A refused subscription leaves nothing behind, and a freed place can be used.
    socket.send(&json!({"type": "UNSUBSCRIBE", "topic": "t0", "group": "g"}));
    socket.expect("OK");
    socket.subscribe("t9", "g", &json!({}));
}

#[test]
fn leaving_a_new_group_before_it_was_joined_is_answered_in_order_and_counts() {
    let server = Server::start();
    let mut socket = server.socket();
    for round in 0..20 {
        let topic = format!("t{round}");
        socket.send(&json!({"type": "SUBSCRIBE", "topic": topic, "group": "g", "rid": 1}));
        socket.send(&json!({"type": "UNSUBSCRIBE", "topic": topic, "group": "g", "rid": 2}));
        for (rid, op) in [(1, "SUBSCRIBE"), (2, "UNSUBSCRIBE")] {
            let ok = socket.expect("OK");
            assert_eq!((&ok["rid"], &ok["op"]), (&json!(rid), &json!(op)), "{ok}");
        }
        assert_eq!(server.socket().publish(&topic, &json!(1)), 1);
        socket.expect_nothing();
        socket.send_ack(&topic, "g", 0, 1);
        socket.refused("bad_group");
    }
}

fn publish_keys(socket: &mut Socket, count: u64) {
    for n in 0..count {
        let key = if n % 2 == 0 { "a" } else { "b" };
        socket.send(&json!({"type": "PUBLISH", "topic": "t", "key": key, "payload": n}));
        socket.expect("PUBLISHED");
    }
}

/// With `at_tail`, the events come while the group is connected, and wait in memory; else they are read from the store.
fn a_changed_filter_holds_for_what_was_read_ahead(at_tail: bool) {
    let server = Server::start();
    let mut publisher = server.socket();
    if !at_tail {
        publish_keys(&mut publisher, 60);
    }
    let mut socket = server.socket();
    let subscribe =
        |key: &str| json!({"from": {"kind": "earliest"}, "max_inflight": 1, "filter": {"key": key}});
    socket.subscribe("t", "g", &subscribe("a"));
    if at_tail {
        publish_keys(&mut publisher, 60);
    }
    assert_eq!(socket.message(), 1);
    socket.subscribe("t", "g", &subscribe("b"));
    publish_keys(&mut publisher, 20);
    socket.send_ack("t", "g", 0, 1);
    loop {
        let message = socket.expect("MESSAGE");
        assert_eq!(message["envelope"]["key"], "b", "{message}");
        let offset = message["offset"].as_u64().expect("an offset");
        socket.ack("t", "g", offset);
        if offset == 80 {
            break;
        }
    }
    assert_eq!(server.committed("t", "g", 0), 80);
}

#[test]
fn a_changed_filter_holds_for_what_was_read_ahead_from_the_store() {
    a_changed_filter_holds_for_what_was_read_ahead(false);
}

#[test]
fn a_changed_filter_holds_for_what_waits_at_the_tail() {
    a_changed_filter_holds_for_what_was_read_ahead(true);
}
