//! Pages say how far the copy is, and a request may ask for at least one position.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use millrace_bus::BusLimits;
use millrace_server::{FollowStatus, FollowedStore, Follower, ServerSettings};
use millrace_store::Store;

use crate::fake::{Fake, filled, follow, listener};
use crate::support::{http, http_with, start};

async fn one_event(addr: std::net::SocketAddr) {
    assert_eq!(http(addr, "POST", "/topics/t/events", r#"{"payload":1}"#).await.status, 200);
}

/// A copy that comes one record further with every look at it.
struct Rising {
    fake: Arc<Fake>,
    looks: AtomicU64,
}

impl FollowedStore for Rising {
    fn store(&self) -> Option<Arc<dyn Store>> {
        self.fake.store()
    }

    fn leader(&self) -> Option<String> {
        self.fake.leader()
    }

    fn status(&self) -> FollowStatus {
        FollowStatus { position: self.looks.fetch_add(1, SeqCst), ..self.fake.status() }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_for_the_position_it_asks_for() {
    let fake = Fake::new(filled(one_event).await);
    let rising = Arc::new(Rising { fake, looks: AtomicU64::new(0) });
    let settings = ServerSettings { position_wait_ms_max: 60_000, ..ServerSettings::default() };
    let follower =
        Follower::start(settings, rising.clone(), &BusLimits::default(), listener().await).unwrap();
    let page = http(follower.addr(), "GET", "/topics/t/events?min_position=5", "").await;
    assert_eq!((page.status, page.header("x-millrace-position")), (200, Some("5")));
    let headers = [("x-millrace-min-position", "9")];
    let page = http_with(follower.addr(), "GET", "/topics?min_position=7", &headers, b"").await;
    assert_eq!((page.status, page.header("x-millrace-position")), (200, Some("9")), "the larger one counts");
    follower.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_that_does_not_come_is_refused_for_now() {
    let fake = Fake::new(filled(one_event).await);
    let settings = ServerSettings { position_wait_ms_max: 50, ..ServerSettings::default() };
    let follower = follow(settings, &fake).await;
    let get = async |path: &str| http(follower.addr(), "GET", path, "").await;
    let page = get("/topics/t/events?min_position=41").await;
    assert_eq!((page.status, page.header("x-millrace-position")), (200, Some("41")));
    for path in [
        "/topics?min_position=42",
        "/topics/t?min_position=42",
        "/topics/t/schemas?min_position=42",
        "/topics/t/events?min_position=42",
        "/dead-letters?min_position=42",
    ] {
        let late = get(path).await;
        assert_eq!((late.status, late.code().as_str()), (503, "limit_reached"), "{path}");
        assert_eq!(late.header("retry-after"), Some("1"));
        assert!(late.json()["detail"].as_str().unwrap().contains("it is at 41"), "{late:?}");
    }
    fake.set(|status| status.position = 42);
    assert_eq!(get("/topics/t/events?min_position=42").await.header("x-millrace-position"), Some("42"));
    for bad in ["-1", "x", "1.5", "99999999999999999999"] {
        assert_eq!(get(&format!("/topics?min_position={bad}")).await.status, 400, "{bad}");
        let headers = [("x-millrace-min-position", bad)];
        assert_eq!(http_with(follower.addr(), "GET", "/topics", &headers, b"").await.status, 400, "{bad}");
    }
    // Missing topics have a position, too: the answer is as old as any other.
    let missing = get("/topics/none").await;
    assert_eq!((missing.status, missing.header("x-millrace-position")), (404, Some("42")));
    // An answer that is not from the copy has none.
    assert_eq!(get("/stats").await.header("x-millrace-position"), None);
    follower.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_has_positions_if_its_store_is_shared() {
    let server = start().await;
    one_event(server.addr()).await;
    let page = http(server.addr(), "GET", "/topics/t/events?min_position=9000", "").await;
    assert_eq!((page.status, page.header("x-millrace-position")), (200, None), "it has its store alone");
    assert_eq!(http(server.addr(), "GET", "/topics?min_position=x", "").await.status, 400);
    server.share_store(Fake::empty());
    let page = http(server.addr(), "GET", "/topics/t/events?min_position=41", "").await;
    assert_eq!((page.status, page.header("x-millrace-position")), (200, Some("41")));
    let topics = http(server.addr(), "GET", "/topics", "").await;
    assert_eq!((topics.status, topics.header("x-millrace-position")), (200, Some("41")));
    server.stop().await.unwrap();
}
