//! A follower shows from its copy what the leader shows.

use std::sync::Arc;

use millrace_bus::BusLimits;
use millrace_server::{FollowPhase, ServerSettings};
use serde_json::json;

use crate::fake::{Fake, LEADER, filled, follow};
use crate::support::{Client, http, http_with, start_on};

/// Topics with partitions, a schema, a group, dead letters.
async fn fill(addr: std::net::SocketAddr) {
    for topic in ["alpha", "beta", "gamma"] {
        let body = json!({"topic": topic, "partitions": 2, "retentionBytes": 1 << 20}).to_string();
        assert_eq!(http(addr, "POST", "/topics", &body).await.status, 201);
    }
    let schema = json!({"schema": {"type": "object"}}).to_string();
    assert_eq!(http(addr, "PATCH", "/topics/beta", &schema).await.status, 200);
    for n in 0..20 {
        let event = json!({"payload": {"n": n}, "key": format!("k{n}"), "id": format!("e{n}")}).to_string();
        assert_eq!(http(addr, "POST", "/topics/alpha/events", &event).await.status, 200);
    }
    assert_eq!(http(addr, "PATCH", "/topics/gamma", r#"{"maxAttempts":1}"#).await.status, 200);
    assert_eq!(
        http(addr, "POST", "/topics/gamma/events", r#"{"payload":"bad","key":"a"}"#).await.status,
        200
    );
    let mut client = Client::connect(addr).await;
    let ok = client
        .ask(r#"{"type":"SUBSCRIBE","topic":"gamma","group":"g","from":{"kind":"earliest"},"ack_mode":"individual","rid":1}"#)
        .await;
    assert_eq!(ok["type"], "OK", "{ok}");
    let message = client.recv().await;
    let (partition, offset) = (&message["envelope"]["partition"], &message["envelope"]["offset"]);
    let nack = json!({
        "type": "NACK", "topic": "gamma", "group": "g", "partition": partition, "offset": offset, "rid": 2,
    });
    assert_eq!(client.ask(&nack.to_string()).await["type"], "OK");
    for _ in 0..200 {
        let letters = http(addr, "GET", "/dead-letters", "").await.json();
        if letters["deadLetters"].as_array().unwrap().iter().any(|one| one["count"] == 1) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    panic!("no dead letter");
}

/// A list of topics without the figures that only a leader knows; any other text as it is.
fn without_figures(text: &str) -> String {
    let Ok(mut doc) = serde_json::from_str::<serde_json::Value>(text) else { return text.to_owned() };
    let Some(topics) = doc.get_mut("topics").and_then(serde_json::Value::as_array_mut) else {
        return text.to_owned();
    };
    for topic in topics {
        let members = topic.as_object_mut().unwrap();
        let figures =
            ["events", "bytes", "lastTs", "published", "delivered", "lag", "deadLetters", "standing"];
        members.retain(|name, _| !figures.contains(&name.as_str()));
    }
    doc.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_shows_what_the_leader_shows() {
    let store = filled(fill).await;
    let settings = ServerSettings { metrics_interval_ms: 0, ..ServerSettings::default() };
    let leader = start_on(settings, BusLimits::default(), store.clone()).await;
    let follower = follow(ServerSettings::default(), &Fake::new(store)).await;
    for path in [
        "/topics",
        "/topics?limit=2",
        "/topics?limit=2&after=beta",
        "/topics?after=zeta",
        "/topics?namespace=other",
        "/topics?limit=0",
        "/topics/alpha",
        "/topics/beta",
        "/topics/gamma",
        "/topics/none",
        "/topics/..",
        "/topics/alpha/schemas",
        "/topics/beta/schemas",
        "/topics/beta/schemas?version=1",
        "/topics/beta/schemas?version=7",
        "/topics/alpha/events",
        "/topics/alpha/events?partition=1&from=3&limit=2&payload_sha256=true",
        "/topics/alpha/events?partition=2",
        "/topics/alpha/events?from=1&ts=1",
        "/topics/alpha/events?ts=99999999999999",
        "/topics/none/events",
        "/dead-letters",
        "/dead-letters?limit=1",
        "/dead-letters?topic=gamma",
        "/dead-letters?topic=none",
        "/dead-letters?handler=nobody",
        "/healthz",
        "/openapi.json",
        "/asyncapi.json",
        "/",
    ] {
        for accept in ["application/json", "application/x-ndjson", "application/cloudevents-batch+json"] {
            let headers = [("accept", accept)];
            let here = http_with(follower.addr(), "GET", path, &headers, b"").await;
            let there = http_with(leader.addr(), "GET", path, &headers, b"").await;
            let (plain_here, plain_there) = (without_figures(&here.body), without_figures(&there.body));
            assert_eq!((here.status, plain_here), (there.status, plain_there), "{path} as {accept}");
            let next = |answer: &crate::support::Answer| answer.header("millrace-next").map(str::to_owned);
            assert_eq!(next(&here), next(&there), "{path} as {accept}");
        }
    }
    let page = http(follower.addr(), "GET", "/topics/alpha/events", "").await.json();
    assert!(!page["events"].as_array().unwrap().is_empty());
    let letters = http(follower.addr(), "GET", "/dead-letters?topic=gamma", "").await.json();
    assert_eq!(letters["events"].as_array().unwrap().len(), 1);
    follower.stop().await;
    leader.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_copy_history_is_the_leaders() {
    let fake = Fake::new(filled(fill).await);
    let follower = follow(ServerSettings::default(), &fake).await;
    let path = "/topics/alpha/events";
    assert_eq!(http(follower.addr(), "GET", path, "").await.status, 200);
    fake.set(|status| {
        status.phase = FollowPhase::Opening("a bit was flipped, so it is made anew".to_owned());
    });
    for path in [path, "/topics", "/topics/alpha", "/topics/beta/schemas", "/dead-letters"] {
        let moved = http(follower.addr(), "GET", path, "").await;
        assert_eq!((moved.status, moved.code().as_str()), (503, "moved"), "{path}");
        assert_eq!(moved.header("x-millrace-leader"), Some(LEADER));
        assert!(moved.json()["detail"].as_str().unwrap().contains("a bit was flipped"), "{moved:?}");
    }
    fake.set(|status| status.phase = FollowPhase::Following);
    assert_eq!(http(follower.addr(), "GET", path, "").await.status, 200);
    follower.stop().await;
}

/// More topics than are read at a time, of two namespaces whose names begin alike.
#[tokio::test(flavor = "multi_thread")]
async fn long_lists_are_paged() {
    let store = filled(async |addr| {
        for n in 0..300 {
            let body = json!({"topic": format!("t{n:03}")}).to_string();
            assert_eq!(http(addr, "POST", "/topics?namespace=many", &body).await.status, 201);
        }
        assert_eq!(http(addr, "POST", "/topics?namespace=many2", r#"{"topic":"x"}"#).await.status, 201);
    })
    .await;
    let follower = follow(ServerSettings::default(), &Fake::new(Arc::clone(&store))).await;
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/topics?namespace=many&limit=70{after}");
        let page = http(follower.addr(), "GET", &path, "").await.json();
        found.extend(page["topics"].as_array().unwrap().iter().map(|one| one["topic"].clone()));
        match page.get("next").and_then(|next| next.as_str()) {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    let expected: Vec<_> = (0..300).map(|n| json!(format!("t{n:03}"))).collect();
    assert_eq!(found, expected);
    follower.stop().await;
}
