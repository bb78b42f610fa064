//! `/healthz`, `/readyz` and `/metrics`, on the common port and on one of their own.

use std::collections::BTreeSet;
use std::time::Duration;

use millrace_server::{FollowPhase, ServerSettings, Unreachable};
use serde_json::{Value, json};

use crate::fake::{Fake, LEADER, follow, listener};
use crate::support::{Client, http, start};

fn unreachable(away_for: Duration) -> Unreachable {
    Unreachable { away_for, reason: "connection refused".to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_is_ready_while_its_copy_follows() {
    let fake = Fake::empty();
    let mut settings = ServerSettings::default();
    settings.broker.commit_stall_ms_max = 60_000;
    let mut follower = follow(settings, &fake).await;
    let probes = follower.listen_probes(listener().await).unwrap();
    for addr in [follower.addr(), probes] {
        let ready = http(addr, "GET", "/readyz", "").await;
        let expected = json!({
            "status": "ready", "role": "follower", "phase": "following", "position": 41, "head_seen": 42,
            "leader": LEADER,
        });
        assert_eq!((ready.status, ready.json()), (200, expected));
        assert_eq!(http(addr, "GET", "/healthz", "").await.json(), json!({"status": "ok"}));
    }
    assert_eq!(http(probes, "GET", "/topics", "").await.status, 404, "only the probes");

    *fake.leader.lock() = None;
    fake.set(|status| status.phase = FollowPhase::TakingOver);
    let ready = http(probes, "GET", "/readyz", "").await;
    assert_eq!((ready.status, &ready.json()["phase"]), (200, &json!("taking_over")));
    assert_eq!(ready.json().get("leader"), Some(&Value::Null));

    fake.set(|status| status.phase = FollowPhase::Opening("the snapshot is being read".to_owned()));
    let opening = http(probes, "GET", "/readyz", "").await;
    assert_eq!((opening.status, opening.code().as_str()), (503, "storage_failed"));
    let doc = opening.json();
    assert_eq!((&doc["role"], &doc["phase"]), (&json!("follower"), &json!("opening")));
    assert!(doc["detail"].as_str().unwrap().contains("the snapshot is being read"), "{doc}");
    assert_eq!(http(probes, "GET", "/healthz", "").await.status, 200);

    fake.set(|status| {
        status.phase = FollowPhase::Following;
        status.reachable = Err(unreachable(Duration::ZERO));
    });
    assert_eq!(http(probes, "GET", "/readyz", "").await.status, 200, "a moment changes nothing");
    fake.set(|status| status.reachable = Err(unreachable(Duration::from_secs(61))));
    let away = http(probes, "GET", "/readyz", "").await;
    assert_eq!((away.status, away.code().as_str()), (503, "storage_failed"));
    assert!(away.json()["detail"].as_str().unwrap().contains("connection refused"), "{away:?}");
    assert_eq!(away.json()["position"], 41);
    follower.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_of_a_shared_store_says_so() {
    let server = start().await;
    assert_eq!(http(server.addr(), "GET", "/readyz", "").await.json(), json!({"status": "ready"}));
    assert!(!http(server.addr(), "GET", "/metrics", "").await.body.contains("millrace_follower"));
    let fake = Fake::empty();
    server.share_store(fake.clone());
    let ready = http(server.addr(), "GET", "/readyz", "").await;
    assert_eq!((ready.status, &ready.json()["role"]), (200, &json!("leader")));
    let metrics = http(server.addr(), "GET", "/metrics", "").await.body;
    for line in ["millrace_follower 0", "millrace_store_position 41", "millrace_commits_total"] {
        assert!(metrics.contains(line), "{line} is missing in {metrics}");
    }
    fake.set(|status| status.reachable = Err(unreachable(Duration::from_secs(3600))));
    assert_eq!(http(server.addr(), "GET", "/readyz", "").await.status, 503);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_tell_how_far_the_copy_is_and_who_was_sent_away() {
    let fake = Fake::empty();
    let follower = follow(ServerSettings::default(), &fake).await;
    for _ in 0..2 {
        http(follower.addr(), "GET", "/stats", "").await;
    }
    Client::connect(follower.addr()).await.recv().await;
    let page = http(follower.addr(), "GET", "/metrics", "").await;
    assert!(page.head.contains("content-type: text/plain; version=0.0.4"), "{page:?}");
    for line in [
        "millrace_follower 1",
        "millrace_store_position 41",
        "millrace_store_head_seen 42",
        "millrace_store_reachable 1",
        "millrace_store_lost_events_total 3",
        "millrace_store_last_record_seconds 1.5",
        "millrace_moved_total{via=\"http\"} 2",
        "millrace_moved_total{via=\"ws\"} 1",
        "millrace_moved_total{via=\"os\"} 0",
        "millrace_moved_total{via=\"socket\"} 0",
        "millrace_refusals_total{code=\"moved\"} 3",
        "millrace_events_damaged_total 0",
    ] {
        assert!(page.body.contains(&format!("{line}\n")), "{line} is missing in {}", page.body);
    }
    fake.set(|status| {
        status.reachable = Err(unreachable(Duration::ZERO));
        status.silent_for = None;
    });
    let page = http(follower.addr(), "GET", "/metrics", "").await.body;
    assert!(page.contains("millrace_store_reachable 0\n"), "{page}");
    assert!(!page.contains("\nmillrace_store_last_record_seconds "), "there was none yet: {page}");
    follower.stop().await;
}

/// The names in a table of docs/operations.md, below the heading.
fn documented(heading: &str) -> BTreeSet<String> {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/operations.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let section = docs.split(&format!("\n{heading}\n")).nth(1).expect("the heading");
    let section = section.split("\n#").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split(['`', '{']).next()).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_metrics_are_the_served_ones() {
    let follower = follow(ServerSettings::default(), &Fake::empty()).await;
    let page = http(follower.addr(), "GET", "/metrics", "").await.body;
    let served: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .map(str::to_owned)
        .collect();
    let (of_all, of_shared) = (documented("### Metrics"), documented("### Metrics of a shared store"));
    assert!(of_shared.is_subset(&served), "{of_shared:?} are not all in {served:?}");
    for name in &served {
        assert!(of_all.contains(name) || of_shared.contains(name), "{name} is not documented");
    }
    follower.stop().await;
}
