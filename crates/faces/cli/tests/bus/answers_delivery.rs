//! The protocol's open questions about delivery, each with our answer as a test.

use std::collections::BTreeSet;

use serde_json::json;

use crate::server::Server;
use crate::socket::Socket;

fn fill(server: &Server, topic: &str, events: u64) {
    let mut socket = server.socket();
    for n in 1..=events {
        socket.publish(topic, &json!(n));
    }
}

fn reader(server: &Server, topic: &str, group: &str, window: u64) -> Socket {
    let mut socket = server.socket();
    socket.subscribe(topic, group, &json!({"from": {"kind": "earliest"}, "max_inflight": window}));
    socket
}

#[test]
fn answer_05_a_cumulative_ack_completes_the_connections_own_lower_offsets_only() {
    let server = Server::start();
    fill(&server, "t", 4);
    let mut a = reader(&server, "t", "g", 2);
    assert_eq!((a.message(), a.message()), (1, 2));
    let mut b = reader(&server, "t", "g", 2);
    assert_eq!((b.message(), b.message()), (3, 4));
    b.ack("t", "g", 4);
    assert_eq!(server.committed("t", "g", 0), 0);
    a.ack("t", "g", 2);
    assert_eq!(server.committed("t", "g", 0), 4);
}

#[test]
fn answer_05_individual_acks_complete_one_offset_each() {
    let server = Server::start();
    fill(&server, "t", 3);
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({"from": {"kind": "earliest"}, "ack_mode": "individual"}));
    (1..=3).for_each(|n| assert_eq!(socket.message(), n));
    socket.ack("t", "g", 3);
    assert_eq!(server.committed("t", "g", 0), 0);
    socket.ack("t", "g", 1);
    assert_eq!(server.committed("t", "g", 0), 1);
    socket.ack("t", "g", 2);
    assert_eq!(server.committed("t", "g", 0), 3);
}

#[test]
fn answer_06_the_window_is_enforced_and_an_event_is_leased_once() {
    let server = Server::start();
    let mut socket = reader(&server, "t", "g", 3);
    fill(&server, "t", 10);
    (1..=3).for_each(|n| assert_eq!(socket.message(), n));
    socket.expect_nothing();
    socket.send_ack("t", "g", 0, 3);
    (4..=6).for_each(|n| assert_eq!(socket.message(), n));
    socket.expect_nothing();
}

#[test]
fn answer_07_the_whole_backlog_arrives_after_the_publisher_is_done() {
    let server = Server::start();
    fill(&server, "t", 200);
    let mut socket = reader(&server, "t", "g", 2);
    for n in 1..=200 {
        assert_eq!(socket.message(), n);
        socket.send_ack("t", "g", 0, n);
    }
}

#[test]
fn answer_08_a_lease_that_runs_out_goes_to_another_member() {
    let server = Server::with(&["--ack-timeout-ms", "1000"]);
    let mut a = reader(&server, "t", "g", 1);
    fill(&server, "t", 1);
    assert_eq!(a.message(), 1);
    let mut b = reader(&server, "t", "g", 1);
    let again = b.expect("MESSAGE");
    assert_eq!((&again["offset"], &again["envelope"]["attempts"]), (&json!(1), &json!(2)));
}

#[test]
fn answer_08_leases_of_a_closed_connection_are_free_at_once() {
    let server = Server::start();
    let mut a = reader(&server, "t", "g", 1);
    fill(&server, "t", 1);
    assert_eq!(a.message(), 1);
    let mut b = reader(&server, "t", "g", 1);
    b.expect_nothing();
    drop(a);
    assert_eq!(b.expect("MESSAGE")["envelope"]["attempts"], 2);
}

#[test]
fn answer_09_members_of_a_group_compete() {
    let server = Server::start();
    let mut members: Vec<Socket> = (0..2).map(|_| reader(&server, "t", "g", 5)).collect();
    fill(&server, "t", 10);
    let seen: Vec<u64> =
        members.iter_mut().flat_map(|member| (0..5).map(|_| member.message()).collect::<Vec<_>>()).collect();
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 10, "{seen:?}");
}

#[test]
fn answer_10_and_11_a_member_reads_every_partition_each_in_offset_order() {
    let server = Server::start();
    assert_eq!(server.post("/topics", &json!({"topic": "t", "partitions": 4})).0, 201);
    let mut socket = reader(&server, "t", "g", 100);
    let mut publisher = server.socket();
    for n in 0..40 {
        publisher.publish("t", &json!(n));
    }
    let mut next = [1; 4];
    for _ in 0..40 {
        let message = socket.expect("MESSAGE");
        let partition = message["partition"].as_u64().expect("a partition") as usize;
        assert_eq!(message["offset"], next[partition]);
        next[partition] += 1;
    }
    assert_eq!(next, [11; 4]);
}

#[test]
fn answer_12_attempts_belong_to_the_group_and_survive_a_kill() {
    let mut server = Server::start();
    fill(&server, "t", 2);
    let mut a = server.socket();
    a.subscribe("t", "a", &json!({"from": {"kind": "earliest"}, "ack_mode": "individual"}));
    assert_eq!((a.message(), a.message()), (1, 2));
    a.send_nack("t", "a", 1, &json!({}));
    assert_eq!(a.expect("MESSAGE")["envelope"]["attempts"], 2);
    // A durable ack of the group also stores its counts of attempts.
    a.ack("t", "a", 2);
    server.kill_and_restart();
    // The NACK counts as an attempt; the delivery that the kill interrupted does not.
    assert_eq!(reader(&server, "t", "a", 1).expect("MESSAGE")["envelope"]["attempts"], 2);
    assert_eq!(reader(&server, "t", "b", 1).expect("MESSAGE")["envelope"].get("attempts"), None);
}

#[test]
fn answer_13_and_14_after_max_attempts_the_event_is_a_dead_letter_and_stays_for_others() {
    let server = Server::start();
    assert_eq!(server.post("/topics", &json!({"topic": "t", "maxAttempts": 2})).0, 201);
    let mut publisher = server.socket();
    publisher.send(
        &json!({"type": "PUBLISH", "topic": "t", "key": "k", "headers": {"ct": "json"}, "payload": {"n": 1}}),
    );
    let id = publisher.expect("PUBLISHED")["id"].clone();
    let mut socket = reader(&server, "t", "g", 1);
    let mut letters = reader(&server, "t.DLQ", "undertaker", 1);
    assert_eq!(socket.message(), 1);
    socket.send_nack("t", "g", 1, &json!({"reason": "first"}));
    assert_eq!(socket.expect("MESSAGE")["envelope"]["attempts"], 2);
    socket.send_nack("t", "g", 1, &json!({"reason": "boom"}));
    let letter = letters.expect("MESSAGE")["envelope"].clone();
    assert_eq!((&letter["key"], &letter["payload"]), (&json!("k"), &json!({"n": 1})));
    for (name, value) in [
        ("ct", json!("json")),
        ("x-dlq-topic", json!("t")),
        ("x-dlq-partition", json!("0")),
        ("x-dlq-offset", json!("1")),
        ("x-dlq-group", json!("g")),
        ("x-dlq-attempts", json!("2")),
        ("x-dlq-reason", json!("boom")),
        ("x-dlq-id", id.clone()),
    ] {
        assert_eq!(letter["headers"][name], value, "{name}");
    }
    assert!(letter["headers"]["x-dlq-ts"].is_string());
    assert_eq!(server.committed("t", "g", 0), 1);
    assert_eq!(reader(&server, "t", "other", 1).message(), 1);
    // Dead-letter topics have no dead letters of their own: a refused letter is redelivered without end.
    let mut last = letters;
    for attempt in 2..=8 {
        last.send_nack("t.DLQ", "undertaker", 1, &json!({}));
        assert_eq!(last.expect("MESSAGE")["envelope"]["attempts"], attempt);
    }
}

#[test]
fn answer_15_a_nack_requeues_at_once_or_after_its_delay() {
    let server = Server::start();
    let mut socket = reader(&server, "t", "g", 1);
    fill(&server, "t", 1);
    assert_eq!(socket.message(), 1);
    socket.send_nack("t", "g", 1, &json!({}));
    assert_eq!(socket.message(), 1);
    let nacked = std::time::Instant::now();
    socket.send_nack("t", "g", 1, &json!({"delay_ms": 150}));
    assert_eq!(socket.message(), 1);
    assert!(nacked.elapsed().as_millis() >= 150, "never early");
}

#[test]
fn answer_16_credits_add_up_and_nothing_pauses() {
    let server = Server::start();
    let mut socket = reader(&server, "t", "g", 100);
    socket.send(&json!({"type": "FLOW", "credits": 0}));
    socket.expect_nothing();
    fill(&server, "t", 5);
    socket.expect_nothing();
    socket.send(&json!({"type": "FLOW", "credits": 1}));
    socket.send(&json!({"type": "FLOW", "credits": 2}));
    (1..=3).for_each(|n| assert_eq!(socket.message(), n));
    socket.expect_nothing();
    for credits in [json!(-1), json!(1.5), json!("many")] {
        socket.send(&json!({"type": "FLOW", "credits": credits}));
        socket.refused("bad_frame");
    }
}

#[test]
fn answer_17_acks_that_make_no_sense_have_no_effect() {
    let server = Server::start();
    fill(&server, "t", 2);
    let mut a = reader(&server, "t", "g", 1);
    assert_eq!(a.message(), 1);
    for offset in [2, 99] {
        a.send_ack("t", "g", 0, offset);
        a.refused("unknown_offset");
    }
    a.send_ack("t", "g", 7, 1);
    a.refused("unknown_offset");
    assert_eq!(server.committed("t", "g", 0), 0);
    // A member may ack an event that another member of its group holds.
    let mut b = reader(&server, "t", "g", 1);
    assert_eq!(b.message(), 2);
    b.ack("t", "g", 1);
    assert_eq!(server.committed("t", "g", 0), 1);
    a.ack("t", "g", 1);
    a.send_nack("t", "g", 1, &json!({}));
    a.refused("unknown_offset");
}

#[test]
fn answer_22_a_group_has_one_filter_and_what_does_not_match_is_done() {
    let server = Server::start();
    let mut socket = server.socket();
    let filter = json!({"filter": {"key": "a", "header": ["ct", "json"]}});
    socket.subscribe("t", "g", &filter);
    let mut publisher = server.socket();
    for (key, ct) in [("b", "json"), ("a", "text"), ("a", "json")] {
        publisher
            .send(&json!({"type": "PUBLISH", "topic": "t", "key": key, "headers": {"ct": ct}, "payload": 1}));
        publisher.expect("PUBLISHED");
    }
    assert_eq!(socket.message(), 3);
    socket.ack("t", "g", 3);
    assert_eq!(server.committed("t", "g", 0), 3);
    let mut other = server.socket();
    other.send(&json!({"type": "SUBSCRIBE", "topic": "t", "group": "g", "filter": {"key": "b"}}));
    other.refused("filter_conflict");
    other.subscribe("t", "g", &filter);
}

#[test]
fn answer_23_subscribing_again_updates_the_window() {
    let server = Server::start();
    fill(&server, "t", 5);
    fill(&server, "u", 1);
    let mut socket = reader(&server, "t", "g", 1);
    assert_eq!(socket.message(), 1);
    socket.expect_nothing();
    socket.subscribe("t", "g", &json!({"max_inflight": 3}));
    assert_eq!((socket.message(), socket.message()), (2, 3));
    socket.expect_nothing();
    socket.subscribe("u", "g", &json!({"from": {"kind": "earliest"}}));
    assert_eq!(socket.expect("MESSAGE")["topic"], "u");
    socket.send(&json!({"type": "UNSUBSCRIBE", "topic": "t", "group": "g", "rid": 9}));
    let ok = socket.expect("OK");
    assert_eq!((&ok["op"], &ok["rid"]), (&json!("UNSUBSCRIBE"), &json!(9)));
    socket.send_ack("t", "g", 0, 3);
    socket.refused("bad_group");
}
