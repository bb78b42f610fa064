//! A leader whose store says that another server leads: everybody is told where to go, and the server ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use millrace_bus::BusLimits;
use millrace_model::{Batch, Outcome};
use millrace_server::{ServeError, Server, ServerSettings};
use millrace_store::{Maintained, MemoryStore, Store, StoreError};
use serde_json::json;

use crate::fake::{Fake, LEADER, LEADER_WS};
use crate::support::{Client, PATIENCE, http, start_on};

/// A store of which another server takes the lead.
struct Lost {
    store: MemoryStore,
    is_lost: AtomicBool,
}

impl Store for Lost {
    millrace_conformance::forward_reads_to!(store);

    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        if self.is_lost.load(SeqCst) {
            return Err(StoreError::Deposed(format!("{LEADER} leads in term 2").into()));
        }
        self.store.commit(batches)
    }

    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError> {
        self.store.maintain(rows_max)
    }
}

async fn leader() -> (Arc<Lost>, Server) {
    let store = Arc::new(Lost { store: MemoryStore::new(), is_lost: AtomicBool::new(false) });
    let settings = ServerSettings { metrics_interval_ms: 0, ..ServerSettings::default() };
    let server = start_on(settings, BusLimits::default(), store.clone()).await;
    (store, server)
}

/// Runs the server, which nobody stops, beside the script. Returns how the server ended.
async fn run_with(server: Server, script: impl Future<Output = ()>) -> Result<(), ServeError> {
    let running = tokio::time::timeout(PATIENCE, server.run_until(std::future::pending()));
    let (ended, ()) = tokio::join!(running, script);
    ended.expect("the server notices by itself")
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_a_deposed_leader_are_sent_to_the_next_one() {
    let (store, server) = leader().await;
    server.share_store(Fake::empty());
    let addr = server.addr();
    let mut publisher = Client::connect(addr).await;
    let mut idle = Client::connect_to(&format!("ws://{addr}/ws?namespace=other")).await;
    let mut os = Client::connect_to(&format!("ws://{addr}/os")).await;
    assert_eq!(
        publisher.ask(r#"{"type":"PUBLISH","topic":"t","payload":1,"rid":1}"#).await["type"],
        "PUBLISHED"
    );
    assert_eq!(idle.ask(r#"{"type":"PING","rid":1}"#).await["type"], "PONG");
    let script = async {
        store.is_lost.store(true, SeqCst);
        let refused = publisher.ask(r#"{"type":"PUBLISH","topic":"t","payload":2,"id":"two","rid":2}"#).await;
        assert_eq!((&refused["code"], &refused["rid"]), (&json!("moved"), &json!(2)), "{refused}");
        assert_eq!((&refused["leader"], &refused["topic"]), (&json!(LEADER_WS), &json!("t")), "{refused}");
        for client in [&mut publisher, &mut idle] {
            let error = client.recv().await;
            assert_eq!((&error["code"], &error["leader"]), (&json!("moved"), &json!(LEADER_WS)));
            assert_eq!(client.closed().await, (1012, LEADER_WS.to_owned()));
        }
        assert_eq!(os.recv().await["data"]["leader"], LEADER_WS);
        assert_eq!(os.closed().await, (1012, LEADER_WS.to_owned()));
    };
    let ended = run_with(server, script).await;
    assert!(matches!(&ended, Err(ServeError::Deposed(why)) if why.contains("term 2")), "{ended:?}");
    let page = store.store.streams().unwrap();
    assert!(page.iter().any(|bounds| bounds.stream.topic.topic() == "t" && bounds.next.0 == 2), "one event");
}

/// The leader's URL is not known yet, or there is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_deposed_leader_need_not_know_the_next_one() {
    let (store, server) = leader().await;
    let mut client = Client::connect(server.addr()).await;
    assert_eq!(client.ask(r#"{"type":"PING","rid":1}"#).await["type"], "PONG");
    store.is_lost.store(true, SeqCst);
    let script = async {
        client.send(r#"{"type":"PUBLISH","topic":"t","payload":2}"#).await;
        for _ in 0..2 {
            let error = client.recv().await;
            assert_eq!(
                (&error["code"], error.get("leader")),
                (&json!("moved"), Some(&json!(null))),
                "{error}"
            );
        }
        assert_eq!(client.closed().await, (1012, String::new()));
    };
    let ended = run_with(server, script).await;
    assert!(matches!(ended, Err(ServeError::Deposed(_))), "{ended:?}");
}

/// Without traffic no commit finds out who leads: somebody else does, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_leader_can_be_told() {
    let (_store, server) = leader().await;
    server.share_store(Fake::empty());
    let mut client = Client::connect(server.addr()).await;
    assert_eq!(client.ask(r#"{"type":"PING","rid":1}"#).await["type"], "PONG");
    let deposer = server.deposer();
    let script = async {
        deposer.depose("another server leads in term 3".to_owned());
        assert_eq!(client.recv().await["leader"], LEADER_WS);
        assert_eq!(client.closed().await, (1012, LEADER_WS.to_owned()));
    };
    let ended = run_with(server, script).await;
    assert!(matches!(&ended, Err(ServeError::Deposed(why)) if why.contains("term 3")), "{ended:?}");
    deposer.depose("again".to_owned());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_over_http_are_sent_to_the_next_leader() {
    let (store, server) = leader().await;
    server.share_store(Fake::empty());
    let addr = server.addr();
    assert_eq!(http(addr, "POST", "/topics/t/events", r#"{"payload":1}"#).await.status, 200);
    store.is_lost.store(true, SeqCst);
    for _ in 0..2 {
        let moved = http(addr, "POST", "/topics/t/events", r#"{"payload":2}"#).await;
        assert_eq!((moved.status, moved.code().as_str()), (503, "moved"), "{moved:?}");
        assert_eq!(moved.header("x-millrace-leader"), Some(LEADER));
    }
    let not_ready = http(addr, "GET", "/readyz", "").await;
    assert_eq!((not_ready.status, &not_ready.json()["role"]), (503, &json!("leader")));
    let ended = run_with(server, async {}).await;
    assert!(matches!(ended, Err(ServeError::Deposed(_))), "{ended:?}");
}
