//! The HTTP edge: every endpoint, and a table of invalid requests.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_bus::BusLimits;
use millrace_model::{Batch, Outcome};
use millrace_server::ServerSettings;
use millrace_store::{Maintained, MemoryStore, Store, StoreError};
use serde_json::json;
use support::{Client, http, http_with, start, start_on};

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_lives_its_life() {
    let server = start().await;
    let addr = server.addr();
    let config = r#"{"topic":"t","partitions":2,"maxAttempts":3}"#;
    let created = http(addr, "POST", "/topics", config).await;
    assert_eq!((created.status, &created.json()["partitions"]), (201, &json!(2)));
    assert_eq!(http(addr, "POST", "/topics", config).await.status, 200);
    let shrunk = http(addr, "POST", "/topics", r#"{"topic":"t","partitions":1}"#).await;
    assert_eq!(shrunk.status, 409, "{shrunk:?}");
    let patched = http(addr, "PATCH", "/topics/t", r#"{"partitions":3,"maxAttempts":null}"#).await.json();
    assert_eq!((&patched["partitions"], patched.get("maxAttempts")), (&json!(3), None));
    assert_eq!(http(addr, "GET", "/topics/t", "").await.json()["streams"].as_array().unwrap().len(), 3);
    let list = http(addr, "GET", "/topics", "").await.json();
    let names: Vec<_> = list["topics"].as_array().unwrap().iter().map(|topic| &topic["topic"]).collect();
    assert_eq!(names, ["system.bus.audit", "system.bus.dlq", "system.metrics", "t"]);
    assert_eq!(http(addr, "DELETE", "/topics/t", "").await.status, 204);
    for path in ["/topics/t", "/topics/t/offsets", "/topics/t/events"] {
        assert_eq!(http(addr, "GET", path, "").await.status, 404, "{path}");
    }
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_go_in_and_come_out_in_pages() {
    let server = start().await;
    let addr = server.addr();
    let one =
        http(addr, "POST", "/topics/t/events", r#"{"payload": {"a" : 1}, "key":"k","id":"first"}"#).await;
    assert_eq!((one.status, &one.json()["offset"], &one.json()["id"]), (200, &json!(1), &json!("first")));
    let again = http(addr, "POST", "/topics/t/events", r#"{"payload":2,"id":"first"}"#).await.json();
    assert_eq!((&again["offset"], &again["id"]), (&json!(1), &json!("first")));
    let many = http(addr, "POST", "/topics/t/events", r#"[{"payload":2},{"payload":3}]"#).await;
    assert_eq!((many.status, &many.json()["offsets"]), (200, &json!([[0, 2], [0, 3]])));
    let page = http(addr, "GET", "/topics/t/events?limit=2", "").await;
    assert!(page.body.contains(r#""payload":{"a" : 1}"#), "bytes are kept: {page:?}");
    assert_eq!((&page.json()["next"], &page.json()["partition"]), (&json!(3), &json!(0)));
    let rest = http(addr, "GET", "/topics/t/events?from=3", "").await.json();
    assert_eq!((rest["events"].as_array().unwrap().len(), &rest["next"]), (1, &json!(4)));
    let after = http(addr, "GET", "/topics/t/events?from=4", "").await.json();
    assert_eq!((&after["events"], &after["next"]), (&json!([]), &json!(4)));
    let ts = rest["events"][0]["ts"].as_u64().unwrap();
    let later = http(addr, "GET", &format!("/topics/t/events?ts={}", ts + 1), "").await.json();
    assert_eq!((&later["events"], &later["next"]), (&json!([]), &json!(4)));
    let lines = http_with(addr, "GET", "/topics/t/events", &[("accept", "application/x-ndjson")], b"").await;
    assert!(lines.head.contains("content-type: application/x-ndjson"), "{lines:?}");
    assert!(lines.head.contains("millrace-next: 4"), "{lines:?}");
    assert_eq!(lines.body.lines().count(), 3);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_get_a_problem_each() {
    let server = start().await;
    let addr = server.addr();
    http(addr, "POST", "/topics/t/events", r#"{"payload":1}"#).await;
    let big = format!(r#"{{"payload":"{}"}}"#, "x".repeat(1 << 20));
    let huge = format!(r#"[{{"payload":"{}"}}]"#, "x".repeat(12 << 20));
    let deep = format!(r#"{{"payload":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    for (method, path, body, status, code) in [
        ("GET", "/nowhere", "", 404, "bad_frame"),
        ("PUT", "/topics", "", 405, "bad_frame"),
        ("POST", "/topics", "{", 400, "bad_json"),
        ("POST", "/topics", "{}", 400, "bad_frame"),
        ("POST", "/topics", r#"{"topic":"a/b"}"#, 400, "bad_topic"),
        ("POST", "/topics", r#"{"topic":"a","partitions":1025}"#, 400, "bad_frame"),
        ("POST", "/topics", r#"{"topic":"a","partitions":-1}"#, 400, "bad_frame"),
        ("POST", "/topics/t/events", "", 400, "bad_json"),
        ("POST", "/topics/t/events", "[]", 400, "bad_frame"),
        ("POST", "/topics/t/events", "{}", 400, "bad_frame"),
        ("POST", "/topics/t/events", r#"[{"payload":1},{}]"#, 400, "bad_frame"),
        ("POST", "/topics/t/events", &big, 413, "too_large"),
        ("POST", "/topics/t/events", &huge, 413, "too_large"),
        ("POST", "/topics/t/events", &deep, 400, "bad_json"),
        ("POST", "/topics/a%00b/events", r#"{"payload":1}"#, 400, "bad_topic"),
        ("POST", "/topics/t/events?namespace=..", r#"{"payload":1}"#, 400, "bad_frame"),
        ("GET", "/topics/unknown/events", "", 404, "bad_topic"),
        ("GET", "/topics/t/events?partition=1", "", 404, "unknown_offset"),
        ("GET", "/topics/t/events?partition=-1", "", 400, "bad_frame"),
        ("GET", "/topics/t/events?limit=0", "", 400, "bad_frame"),
        ("GET", "/topics/t/events?limit=10001", "", 400, "bad_frame"),
        ("GET", "/topics/t/events?from=1.5", "", 400, "bad_frame"),
        ("GET", "/topics/t/events?from=1&ts=1", "", 400, "bad_frame"),
        ("GET", "/topics/unknown/offsets", "", 404, "bad_topic"),
        ("DELETE", "/topics/unknown", "", 404, "bad_topic"),
        ("PATCH", "/topics/unknown", "{}", 404, "bad_topic"),
        ("POST", "/topics/t/groups/nobody/seek", r#"{"from":{"kind":"earliest"}}"#, 404, "bad_group"),
        ("POST", "/topics/t/groups/g/seek", "{}", 400, "bad_frame"),
        ("POST", "/dead-letters/unknown/replay", "", 404, "bad_topic"),
        ("GET", "/ws", "", 426, "bad_frame"),
    ] {
        let answer = http(addr, method, path, body).await;
        assert_eq!(answer.status, status, "{method} {path} {body:.80}: {answer:?}");
        assert_eq!(answer.code(), code, "{method} {path} {body:.80}");
    }
    let not_text = http_with(addr, "POST", "/topics", &[], &[0xff, 0xfe]).await;
    assert_eq!((not_text.status, not_text.code().as_str()), (400, "bad_json"));
    let stranger = http_with(addr, "GET", "/topics", &[("origin", "http://evil.example")], b"").await;
    assert_eq!((stranger.status, stranger.code().as_str()), (403, "forbidden"));
    let own = format!("http://{addr}");
    assert_eq!(http_with(addr, "GET", "/topics", &[("origin", &own)], b"").await.status, 200);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_unknown_length_is_cut_at_the_bound() {
    let server = start().await;
    let chunk = "x".repeat(1 << 16);
    let chunks =
        (0..20).map(|_| format!("{:x}\r\n{chunk}\r\n", chunk.len())).collect::<String>() + "0\r\n\r\n";
    let sent = [("transfer-encoding", "chunked")];
    let answer = http_with(server.addr(), "POST", "/topics", &sent, chunks.as_bytes()).await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "too_large"));
    let fine =
        http_with(server.addr(), "POST", "/topics", &sent, b"d\r\n{\"topic\":\"t\"}\r\n0\r\n\r\n").await;
    assert_eq!(fine.status, 201, "{fine:?}");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_moved_unless_it_is_busy() {
    let server = start().await;
    let addr = server.addr();
    let mut client = Client::connect(addr).await;
    for _ in 0..3 {
        client.ask(r#"{"type":"PUBLISH","topic":"t","payload":1}"#).await;
    }
    client.ask(r#"{"type":"SUBSCRIBE","topic":"t","group":"g","from":{"kind":"earliest"}}"#).await;
    assert_eq!(client.recv().await["type"], "MESSAGE");
    let seek = r#"{"from":{"kind":"offset","value":2}}"#;
    let busy = http(addr, "POST", "/topics/t/groups/g/seek", seek).await;
    assert_eq!((busy.status, busy.code().as_str()), (409, "group_busy"));
    client.socket.close(None).await.unwrap();
    let mut moved = busy;
    while moved.status == 409 {
        moved = http(addr, "POST", "/topics/t/groups/g/seek", seek).await;
    }
    assert_eq!((moved.status, &moved.json()["partitions"]), (200, &json!([{"partition": 0, "next": 2}])));
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_listed_read_and_replayed_once() {
    let server = start().await;
    let addr = server.addr();
    http(addr, "POST", "/topics", r#"{"topic":"t","maxAttempts":1}"#).await;
    http(addr, "POST", "/topics/t/events", r#"{"payload":{"n":1},"headers":{"trace":"7"}}"#).await;
    let mut client = Client::connect(addr).await;
    client.ask(r#"{"type":"SUBSCRIBE","topic":"t","group":"g","from":{"kind":"earliest"}}"#).await;
    client.recv().await;
    client
        .ask(r#"{"type":"NACK","topic":"t","partition":0,"group":"g","offset":1,"reason":"boom","rid":1}"#)
        .await;
    let mut letters = json!([]);
    while letters[0]["count"] != json!(1) {
        letters = http(addr, "GET", "/dead-letters", "").await.json()["deadLetters"].clone();
    }
    assert_eq!((&letters[0]["topic"], &letters[0]["dlq"]), (&json!("t"), &json!("t.DLQ")));
    let entries = http(addr, "GET", "/dead-letters?topic=t", "").await.json();
    assert_eq!(entries["events"][0]["headers"]["x-dlq-reason"], "boom", "{entries}");
    for (stored, duplicates) in [(1, 0), (0, 1)] {
        let replayed = http(addr, "POST", "/dead-letters/t/replay", "").await;
        let told = replayed.json();
        let expected = json!({"topic": "t", "dlq": "t.DLQ", "partition": 0, "replayed": stored,
            "duplicates": duplicates, "next": 2, "more": false});
        assert_eq!((replayed.status, &told), (200, &expected), "{replayed:?}");
    }
    let events = http(addr, "GET", "/topics/t/events", "").await.json();
    let events = events["events"].as_array().unwrap();
    assert_eq!(events.len(), 2, "replayed twice, stored once: {events:?}");
    let told = json!({"trace": "7", "x-replayed-from": &events[0]["id"], "x-replayed-letter": &entries["events"][0]["id"]});
    assert_eq!((&events[1]["payload"], &events[1]["headers"]), (&json!({"n": 1}), &told));
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_tells_how_it_is() {
    let server = start().await;
    let addr = server.addr();
    http(addr, "POST", "/topics/t/events", r#"{"payload":1}"#).await;
    assert_eq!(http(addr, "GET", "/healthz", "").await.status, 200);
    assert_eq!(http(addr, "GET", "/readyz", "").await.status, 200);
    let stats = http(addr, "GET", "/stats", "").await.json();
    assert_eq!((&stats["published"], &stats["byTopic"]["t"]["pub"]), (&json!(1), &json!(1)));
    let metrics = http(addr, "GET", "/metrics", "").await;
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{metrics:?}");
    for line in [
        "millrace_events_published_total 1",
        "millrace_topic_published_total{namespace=\"default\",topic=\"t\"} 1",
        "millrace_commit_events_total 1",
        "# TYPE millrace_commit_seconds histogram",
        "millrace_storage_failed 0",
    ] {
        assert!(metrics.body.contains(&format!("{line}\n")), "{line} is missing in {}", metrics.body);
    }
    assert!(http(addr, "GET", "/", "").await.body.contains("Millrace"));
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_store_is_told_to_everyone() {
    let store = Arc::new(Failing { store: MemoryStore::new(), fails: AtomicBool::new(false) });
    let server = start_on(ServerSettings::default(), BusLimits::default(), store.clone()).await;
    let addr = server.addr();
    assert_eq!(http(addr, "POST", "/topics/t/events", r#"{"payload":1}"#).await.status, 200);
    store.fails.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let failed = http(addr, "POST", "/topics/t/events", r#"{"payload":2}"#).await;
        assert_eq!((failed.status, failed.code().as_str()), (503, "storage_failed"));
    }
    let not_ready = http(addr, "GET", "/readyz", "").await;
    assert_eq!((not_ready.status, not_ready.code().as_str()), (503, "storage_failed"));
    assert_eq!(http(addr, "GET", "/healthz", "").await.status, 200);
    let events = http(addr, "GET", "/topics/t/events", "").await.json();
    assert_eq!(events["events"].as_array().unwrap().len(), 1, "what was confirmed stays readable");
    assert!(server.stop().await.is_err());
}

/// A store whose commits fail from some moment on, as on a full disk.
struct Failing {
    store: MemoryStore,
    fails: AtomicBool,
}

impl Store for Failing {
    millrace_conformance::forward_reads_to!(store);

    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(StoreError::Poisoned("disk full".into()));
        }
        self.store.commit(batches)
    }
    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError> {
        self.store.maintain(rows_max)
    }
}
