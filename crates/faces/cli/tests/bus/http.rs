//! The HTTP endpoints as a user sees them.

use serde_json::json;

use crate::server::Server;

#[test]
fn a_topic_is_created_described_changed_and_deleted() {
    let mut server = Server::start();
    let config = json!({"topic": "t", "partitions": 2, "maxAttempts": 7});
    let (status, made) = server.post("/topics", &config);
    assert_eq!((status, &made["topic"], &made["partitions"]), (201, &json!("t"), &json!(2)));
    assert_eq!(server.send_json("PATCH", "/topics/t", &json!({"ackTimeoutMs": 1000})).0, 200);
    server.kill_and_restart();
    let (_, found) = server.get("/topics/t");
    assert_eq!((&found["maxAttempts"], &found["ackTimeoutMs"]), (&json!(7), &json!(1000)));
    let (_, list) = server.get("/topics");
    assert!(list.to_string().contains("\"t\""), "{list}");
    assert_eq!(server.request("DELETE", "/topics/t", None).0 / 100, 2);
    assert_eq!(server.get("/topics/t").0, 404);
    server.kill_and_restart();
    assert_eq!(server.get("/topics/t").0, 404);
}

#[test]
fn events_are_published_and_read_back() {
    let server = Server::start();
    let (status, published) = server.post("/topics/t/events", &json!({"payload": {"a": 1}, "key": "k"}));
    assert_eq!(status / 100, 2, "{published}");
    assert_eq!((&published["partition"], &published["offset"]), (&json!(0), &json!(1)));
    assert_eq!(published["durability"], "fsync");
    let (status, batch) = server.post("/topics/t/events", &json!([{"payload": 2}, {"payload": 3}]));
    assert_eq!(status / 100, 2, "{batch}");
    assert_eq!(batch["offsets"], json!([[0, 2], [0, 3]]));
    let (_, page) = server.get("/topics/t/events?from=2&limit=1");
    assert_eq!((&page["topic"], &page["partition"], &page["next"]), (&json!("t"), &json!(0), &json!(3)));
    assert_eq!(page["events"].as_array().map(Vec::len), Some(1));
    assert_eq!((&page["events"][0]["offset"], &page["events"][0]["payload"]), (&json!(2), &json!(2)));
    let (_, empty) = server.get("/topics/t/events?from=4");
    assert_eq!((&empty["events"], &empty["next"]), (&json!([]), &json!(4)));
}

#[test]
fn events_come_as_lines_if_asked_for() {
    let server = Server::start();
    server.post("/topics/t/events", &json!([{"payload": 1}, {"payload": {"x": "\n"}}]));
    let mut response = ureq::get(format!("{}/topics/t/events", server.http_url()))
        .header("accept", "application/x-ndjson")
        .call()
        .expect("an answer");
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let text = response.body_mut().read_to_string().expect("a body");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["payload"], json!({"x": "\n"}));
}

#[test]
fn a_seek_moves_a_group_and_is_refused_while_events_are_held() {
    let server = Server::start();
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    for n in 1..=3 {
        socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": n}));
    }
    while socket.next()["offset"] != 3 {}
    let seek = |body| server.post("/topics/t/groups/g/seek", &body);
    let (status, problem) = seek(json!({"from": {"kind": "earliest"}}));
    assert_eq!((status, &problem["code"]), (409, &json!("group_busy")));
    drop(socket);
    while seek(json!({"from": {"kind": "offset", "value": 2}, "partition": 0})).0 == 409 {}
    assert_eq!(server.committed("t", "g", 0), 1);
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    assert_eq!(socket.message(), 2);
}

#[test]
fn dead_letters_are_listed_and_replayed_to_their_topic_once() {
    let server = Server::start();
    server.post("/topics", &json!({"topic": "t", "maxAttempts": 1}));
    server.post("/topics/t/events", &json!({"payload": {"n": 1}, "key": "k", "headers": {"ct": "json"}}));
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({"from": {"kind": "earliest"}}));
    assert_eq!(socket.message(), 1);
    let mut letters = server.socket();
    letters.subscribe("t.DLQ", "watch", &json!({"from": {"kind": "earliest"}}));
    socket.send_nack("t", "g", 1, &json!({"reason": "boom"}));
    letters.expect("MESSAGE");
    let (status, list) = server.get("/dead-letters");
    assert_eq!(status, 200);
    assert!(list.to_string().contains("t.DLQ"), "{list}");
    let (status, entries) = server.get("/dead-letters?topic=t");
    assert_eq!(status, 200);
    assert!(entries.to_string().contains("boom"), "{entries}");
    assert_eq!(list["deadLetters"][0]["lastTs"], entries["events"][0]["ts"], "{list}");
    assert!(list["deadLetters"][0]["lastTs"].is_u64(), "{list}");
    for _ in 0..2 {
        let (status, replayed) = server.post("/dead-letters/t/replay", &json!({}));
        assert_eq!(status / 100, 2, "{replayed}");
    }
    let again = socket.expect("MESSAGE")["envelope"].clone();
    assert_eq!(
        (&again["offset"], &again["key"], &again["payload"]),
        (&json!(2), &json!("k"), &json!({"n": 1}))
    );
    assert_eq!(again["headers"]["ct"], "json");
    assert_eq!(again["headers"].get("x-dlq-topic"), None);
    assert_eq!(server.get("/topics/t/offsets").1["partitions"][0]["next"], 3, "replayed once");
}

#[test]
fn lists_of_topics_come_in_pages() {
    let server = Server::with(&["--list-max", "3"]);
    for topic in ["a", "b", "b.DLQ", "c", "d.DLQ"] {
        assert_eq!(server.post("/topics", &json!({"topic": topic})).0, 201);
    }
    // Names that sort around the name of the namespace under test.
    for namespace in ["aaa", "default-2", "default.2", "zzz"] {
        server.post(&format!("/topics?namespace={namespace}"), &json!({"topic": "b"}));
    }
    let names = |page: &serde_json::Value, list: &str| -> Vec<String> {
        let names = page[list].as_array().expect("a list").iter();
        names.map(|topic| topic["topic"].as_str().expect("a name").to_owned()).collect()
    };
    for (query, expected, next) in [
        ("", &["a", "b", "b.DLQ"][..], json!("b.DLQ")),
        ("?after=b.DLQ", &["c", "d.DLQ", "system.bus.audit"], json!("system.bus.audit")),
        ("?limit=2", &["a", "b"], json!("b")),
        ("?limit=2&after=b", &["b.DLQ", "c"], json!("c")),
        ("?limit=2&after=bb", &["c", "d.DLQ"], json!("d.DLQ")),
        ("?after=d.DLQ", &["system.bus.audit", "system.bus.dlq", "system.metrics"], json!(null)),
        ("?after=system.metrics", &[], json!(null)),
        ("?namespace=default-2", &["b"], json!(null)),
        ("?namespace=none", &[], json!(null)),
    ] {
        let (status, page) = server.get(&format!("/topics{query}"));
        assert_eq!((status, &page["next"]), (200, &next), "{query}: {page}");
        assert_eq!(names(&page, "topics"), expected, "{query}");
    }
    let (_, page) = server.get("/dead-letters?limit=1");
    assert_eq!((names(&page, "deadLetters"), &page["next"]), (vec!["b".to_owned()], &json!("b.DLQ")));
    let (_, page) = server.get("/dead-letters?limit=1&after=b.DLQ");
    assert_eq!((names(&page, "deadLetters"), page.get("next")), (vec!["d".to_owned()], None));
    assert_eq!(page["deadLetters"][0].get("lastTs"), None, "without a letter there is no newest one: {page}");
    for query in ["?limit=0", "?limit=4", "?limit=x", "?after=a..b", "?after=%2F"] {
        assert_eq!(server.get(&format!("/topics{query}")).0, 400, "{query}");
    }
}

#[test]
fn namespaces_do_not_meet() {
    let server = Server::start();
    server.post("/topics/t/events?namespace=blue", &json!({"payload": "blue"}));
    server.post("/topics/t/events", &json!({"payload": "default"}));
    let mut socket = crate::socket::Socket::open(&format!("{}?namespace=blue", server.ws_url()));
    socket.subscribe("t", "g", &json!({"from": {"kind": "earliest"}}));
    assert_eq!(socket.expect("MESSAGE")["envelope"]["payload"], "blue");
    socket.expect_nothing();
    let (_, page) = server.get("/topics/t/events");
    assert_eq!(page["events"][0]["payload"], "default");
}

#[test]
fn health_stats_and_metrics_tell_what_happened() {
    let server = Server::start();
    assert_eq!(server.get("/healthz").0, 200);
    assert_eq!(server.get("/readyz").0, 200);
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": 1}));
    let _ = (socket.next(), socket.next());
    socket.ack("t", "g", 1);
    let (_, stats) = server.get("/stats");
    for name in ["published", "delivered", "acks"] {
        assert_eq!(stats[name], 1, "{name}: {stats}");
    }
    assert_eq!(stats["byTopic"]["t"], json!({"pub": 1, "del": 1}), "{stats}");
    let (_, metrics) = server.request("GET", "/metrics", None);
    assert!(metrics.contains("# TYPE millrace_events_published_total counter"), "{metrics}");
    let is_known = |line: &str| ["#", "millrace_", "process_"].iter().any(|start| line.starts_with(start));
    assert!(metrics.lines().all(is_known), "{metrics}");
}

#[test]
fn who_asks_past_the_end_goes_on_at_the_end() {
    let server = Server::start();
    let mut socket = server.socket();
    for n in 1..=3 {
        socket.publish("t", &json!(n));
    }
    let next = |from: u64| server.get(&format!("/topics/t/events?from={from}")).1["next"].as_u64();
    assert_eq!([next(1), next(3), next(4), next(999)], [Some(4); 4]);
    server.post("/topics", &json!({"topic": "empty"}));
    assert_eq!(server.get("/topics/empty/events?from=5").1["next"], 1);
}
