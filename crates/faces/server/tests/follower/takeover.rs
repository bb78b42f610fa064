//! Two parts on one port: a follower becomes the leader and the other way round, on clones of one listener.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use millrace_bus::BusLimits;
use millrace_server::{Follower, Server, ServerSettings};
use millrace_store::MemoryStore;
use tokio::net::TcpListener;

use crate::fake::Fake;
use crate::support::{Client, http};

#[tokio::test(flavor = "multi_thread")]
async fn the_port_is_kept_while_the_part_changes() {
    let kept = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    kept.set_nonblocking(true).unwrap();
    let clone = || TcpListener::from_std(kept.try_clone().unwrap()).unwrap();
    let store = Arc::new(MemoryStore::new());
    let fake = Fake::new(store.clone());
    let limits = BusLimits::default();
    let patient = ServerSettings { position_wait_ms_max: 60_000, ..ServerSettings::default() };
    let follow = || Follower::start(patient.clone(), fake.clone(), &limits, clone()).unwrap();

    let follower = follow();
    let addr = follower.addr();
    assert_eq!(http(addr, "POST", "/topics/t/events", r#"{"payload":1}"#).await.status, 503);
    // A request in progress delays nobody, and is answered.
    let looks = fake.looks.load(SeqCst);
    let slow = tokio::spawn(async move { http(addr, "GET", "/topics?min_position=100", "").await });
    while fake.looks.load(SeqCst) == looks {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    follower.stop_accepting();
    let server =
        Server::start(ServerSettings::default(), store.clone(), limits.clone(), clone()).await.unwrap();
    server.share_store(fake.clone());
    assert_eq!(http(addr, "POST", "/topics/t/events", r#"{"payload":1}"#).await.status, 200);
    fake.set(|status| status.position = 100);
    assert_eq!(slow.await.unwrap().status, 200);
    follower.stop().await;
    let mut client = Client::connect(addr).await;
    assert_eq!(client.ask(r#"{"type":"PING","rid":1}"#).await["type"], "PONG");
    server.stop().await.unwrap();

    // A client that connects between two parts waits for the next one.
    let between = tokio::spawn(async move { http(addr, "GET", "/topics/t/events", "").await });
    let follower = follow();
    let page = between.await.unwrap();
    assert_eq!((page.status, page.json()["events"].as_array().unwrap().len()), (200, 1));
    follower.stop().await;
}

/// The same process opens a shared store again as soon as it has lost the lead: nothing of the server that led may keep the
/// store open, whatever its intervals are.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_stopped_lets_its_store_go() {
    let store = Arc::new(MemoryStore::new());
    let settings = ServerSettings { metrics_interval_ms: 3_600_000, ..ServerSettings::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::start(settings, store.clone(), BusLimits::default(), listener).await.unwrap();
    let mut client = Client::connect(server.addr()).await;
    assert_eq!(client.ask(r#"{"type":"PING","rid":1}"#).await["type"], "PONG");
    server.stop().await.unwrap();
    let began = std::time::Instant::now();
    while Arc::strong_count(&store) > 1 {
        assert!(began.elapsed() < Duration::from_secs(60), "somebody still has the store");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
