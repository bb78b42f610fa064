//! The protocol's open questions, each with our answer as a test; the numbers are those of the list of answers.

use std::collections::BTreeSet;
use std::thread;

use serde_json::{Value, json};

use crate::server::Server;

#[test]
fn answer_01_offsets_start_at_one_and_zero_means_nothing() {
    let server = Server::start();
    let mut socket = server.socket();
    assert_eq!(socket.publish("t", &json!(1)), 1);
    for (group, value) in [("g0", 0), ("g1", 1)] {
        let ok = socket.subscribe("t", group, &json!({"from": {"kind": "offset", "value": value}}));
        assert_eq!(ok["partitions"], json!([{"partition": 0, "next": 1}]));
        assert_eq!(socket.message(), 1);
        assert_eq!(server.committed("t", group, 0), 0);
    }
}

#[test]
fn answer_02_a_new_group_starts_at_the_tail_and_its_commit_is_durable_at_subscribe() {
    let mut server = Server::start();
    let mut socket = server.socket();
    socket.publish("t", &json!(1));
    let ok = socket.subscribe("t", "g", &json!({}));
    assert_eq!(ok["partitions"][0]["next"], 2);
    socket.expect_nothing();
    server.kill_and_restart();
    let mut socket = server.socket();
    socket.publish("t", &json!(2));
    let ok = socket.subscribe("t", "g", &json!({"from": {"kind": "latest"}}));
    assert_eq!(ok["partitions"][0]["next"], 2);
    assert_eq!(socket.message(), 2);
}

#[test]
fn answer_03_an_existing_commit_beats_from_unless_reset_says_otherwise() {
    let server = Server::start();
    let mut socket = server.socket();
    for n in 1..=3 {
        socket.publish("t", &json!(n));
    }
    let earliest = json!({"from": {"kind": "earliest"}});
    socket.subscribe("t", "g", &earliest);
    (1..=3).for_each(|n| assert_eq!(socket.message(), n));
    socket.ack("t", "g", 2);
    drop(socket);

    let mut second = server.socket();
    let ok = second.subscribe("t", "g", &json!({"from": {"kind": "offset", "value": 1}}));
    assert_eq!(ok["partitions"][0]["next"], 3);
    assert_eq!(second.message(), 3);

    let mut third = server.socket();
    third.send(&json!({"type": "SUBSCRIBE", "topic": "t", "group": "g", "rid": 7,
                       "from": {"kind": "offset", "value": 1, "reset": true}}));
    let error = third.expect("ERROR");
    assert_eq!((&error["code"], &error["rid"]), (&json!("group_busy"), &json!(7)));

    second.ack("t", "g", 3);
    let ok = third.subscribe("t", "g", &json!({"from": {"kind": "offset", "value": 1, "reset": true}}));
    assert_eq!(ok["partitions"][0]["next"], 1);
}

#[test]
fn answer_04_from_timestamp_is_the_first_event_not_older() {
    let server = Server::start();
    let mut socket = server.socket();
    // Publish until the clock has moved on, so that there are two different times.
    let mut times: Vec<u64> = Vec::new();
    while times.first() == times.last() || times.len() < 3 {
        let offset = socket.publish("t", &json!(0));
        let (_, page) = server.get(&format!("/topics/t/events?from={offset}&limit=1"));
        times.push(page["events"][0]["ts"].as_u64().expect("a time"));
    }
    let newest = *times.last().expect("times");
    let first_of_newest = times.iter().position(|ts| *ts == newest).expect("it is there") as u64 + 1;
    let ok = socket.subscribe("t", "g", &json!({"from": {"kind": "timestamp", "value": newest}}));
    assert_eq!(ok["partitions"][0]["next"], first_of_newest);
    assert_eq!(socket.message(), first_of_newest);
    let tail =
        socket.subscribe("t", "tail", &json!({"from": {"kind": "timestamp", "value": newest + 3_600_000}}));
    assert_eq!(tail["partitions"][0]["next"], times.len() + 1);
    socket.send(&json!({"type": "SUBSCRIBE", "topic": "t", "group": "h", "from": {"kind": "timestamp"}}));
    socket.refused("bad_frame");
}

#[test]
fn answer_18_published_means_that_it_is_there_even_after_a_kill() {
    let mut server = Server::start();
    let mut socket = server.socket();
    socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": {"n": 1}, "rid": "r"}));
    let published = socket.expect("PUBLISHED");
    assert_eq!(published["durability"], "fsync");
    assert_eq!(published["rid"], "r");
    server.kill_and_restart();
    let (_, page) = server.get("/topics/t/events");
    assert_eq!(page["events"][0]["payload"], json!({"n": 1}));
    assert_eq!(page["events"][0]["id"], published["id"]);
}

#[test]
fn answer_19_concurrent_publishers_get_dense_offsets_and_readers_see_no_gap() {
    const CLIENTS: u64 = 8;
    const EACH: u64 = 50;
    let server = Server::start();
    let mut reader = server.socket();
    reader.subscribe("t", "g", &json!({"max_inflight": 1000}));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut socket = server.socket();
            thread::spawn(move || (0..EACH).map(|n| socket.publish("t", &json!(n))).collect::<Vec<_>>())
        })
        .collect();
    let offsets: BTreeSet<u64> =
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect();
    assert!(offsets.into_iter().eq(1..=CLIENTS * EACH));
    for expected in 1..=CLIENTS * EACH {
        assert_eq!(reader.message(), expected);
    }
}

#[test]
fn answer_20_names_may_hold_colons_and_redelivery_still_works() {
    let server = Server::start();
    let mut socket = server.socket();
    let (topic, group) = ("heartbeat:received.v1", "changelog:processes");
    socket.subscribe(topic, group, &json!({}));
    socket.publish(topic, &json!(1));
    assert_eq!(socket.message(), 1);
    socket.send_nack(topic, group, 1, &json!({}));
    assert_eq!(socket.expect("MESSAGE")["envelope"]["attempts"], 2);
}

#[test]
fn answer_21_retention_removes_by_age_and_offsets_are_never_used_again() {
    let mut server = Server::with(&["--retention-interval-ms", "20"]);
    let (status, _) = server.post("/topics", &json!({"topic": "t", "retentionMs": 1}));
    assert_eq!(status, 201);
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({"from": {"kind": "earliest"}}));
    drop(socket);
    let mut socket = server.socket();
    for n in 1..=3 {
        socket.publish("t", &json!(n));
    }
    let start = |server: &Server| server.get("/topics/t/offsets").1["partitions"][0]["start"].as_u64();
    while start(&server) != Some(4) {}
    server.kill_and_restart();
    assert_eq!(start(&server), Some(4));
    let mut socket = server.socket();
    let (status, _) = server.send_json("PATCH", "/topics/t", &json!({"retentionMs": null}));
    assert_eq!(status, 200);
    assert_eq!(socket.publish("t", &json!(4)), 4);
    socket.subscribe("t", "g", &json!({}));
    assert_eq!(socket.message(), 4);
}

#[test]
fn answer_24_ids_are_uuid_v7_and_a_clients_own_id_is_kept() {
    let server = Server::start();
    let mut socket = server.socket();
    socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": 1}));
    let id = socket.expect("PUBLISHED")["id"].as_str().expect("an id").to_owned();
    assert_eq!((id.len(), &id[14..15]), (36, "7"), "{id}");
    for _ in 0..2 {
        socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": 2, "id": "order \"7\""}));
        let published = socket.expect("PUBLISHED");
        assert_eq!((&published["id"], &published["offset"]), (&json!("order \"7\""), &json!(2)));
    }
}

#[test]
fn answer_25_there_is_no_payload_hash() {
    let server = Server::start();
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    socket.send(
        &json!({"type": "PUBLISH", "topic": "t", "key": "k", "headers": {"a": "b"}, "payload": {"x": [1]}}),
    );
    let mut frames = [socket.next(), socket.next()];
    frames.sort_by_key(|frame| frame["type"].to_string());
    let envelope = frames[0]["envelope"].as_object().expect("an envelope").clone();
    let names: Vec<&str> = envelope.keys().map(String::as_str).collect();
    let mut expected = ["id", "ts", "topic", "key", "partition", "offset", "headers", "payload"];
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn publishing_to_system_topics_makes_no_other_topic() {
    let server = Server::start();
    let mut socket = server.socket();
    for topic in ["system.bus.audit", "system.bus.dlq", "system.metrics"] {
        socket.publish(topic, &json!({"cpu": 1}));
    }
    let (_, list) = server.get("/topics");
    let names: Vec<_> =
        list["topics"].as_array().expect("topics").iter().map(|topic| &topic["topic"]).collect();
    assert_eq!(names, ["system.bus.audit", "system.bus.dlq", "system.metrics"]);
}

#[test]
fn answer_27_partitions_only_grow() {
    let server = Server::start();
    assert_eq!(server.post("/topics", &json!({"topic": "t", "partitions": 2})).0, 201);
    assert_eq!(server.post("/topics", &json!({"topic": "t", "partitions": 4})).0, 200);
    let (status, problem) = server.post("/topics", &json!({"topic": "t", "partitions": 3}));
    assert_eq!(status, 409, "{problem}");
    assert_eq!(server.get("/topics/t").1["partitions"], 4);
}

#[test]
fn answer_28_the_memory_store_can_publish() {
    let server = Server::with(&["--store", "memory:"]);
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": 1}));
    let frames = [socket.next(), socket.next()];
    let published = frames.iter().find(|frame| frame["type"] == "PUBLISHED").expect("an answer");
    assert_eq!(published["durability"], "memory");
}

#[test]
fn answer_31_a_topic_may_ask_for_less_than_a_sync() {
    let server = Server::start();
    assert_eq!(server.post("/topics", &json!({"topic": "telemetry", "durability": "os"})).0, 201);
    let mut socket = server.socket();
    let durability = |socket: &mut crate::socket::Socket, topic: &str| -> Value {
        socket.send(&json!({"type": "PUBLISH", "topic": topic, "payload": 1}));
        socket.expect("PUBLISHED")["durability"].clone()
    };
    assert_eq!(durability(&mut socket, "telemetry"), "os");
    assert_eq!(durability(&mut socket, "orders"), "fsync");
}
