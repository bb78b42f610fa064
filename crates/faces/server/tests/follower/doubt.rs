//! A leader that cannot write for a while and may have been replaced: it lets its clients go, and goes on if it leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use millrace_bus::BusLimits;
use millrace_model::{Batch, Outcome};
use millrace_server::{Server, ServerSettings};
use millrace_store::{Maintained, MemoryStore, Store, StoreError};
use parking_lot::{Condvar, Mutex};
use serde_json::json;

use crate::fake::Fake;
use crate::support::{Client, http, start_on};

const SUBSCRIBE: &str = r#"{"type":"SUBSCRIBE","topic":"t","group":"g","from":{"kind":"earliest"},"rid":1}"#;

async fn leader() -> Server {
    let settings = ServerSettings { metrics_interval_ms: 0, ..ServerSettings::default() };
    let server = start_on(settings, BusLimits::default(), Arc::new(MemoryStore::new())).await;
    server.share_store(Fake::empty());
    server
}

async fn sent_away(client: &mut Client) {
    let error = client.recv().await;
    assert_eq!((&error["code"], &error["leader"]), (&json!("moved"), &json!(null)), "{error}");
    assert_eq!(client.closed().await, (1012, String::new()), "the next server is not known");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_look_for_the_leader_while_the_lead_is_in_doubt() {
    let server = leader().await;
    let (addr, doubter) = (server.addr(), server.lead_doubter());
    let mut bus = Client::connect(addr).await;
    let mut os = Client::connect_to(&format!("ws://{addr}/os")).await;
    assert_eq!(bus.ask(SUBSCRIBE).await["type"], "OK");
    for _ in 0..2 {
        doubter.tell(Some("no word from the engine for 2600 ms".to_owned()));
    }
    sent_away(&mut bus).await;
    assert_eq!(os.recv().await["data"]["error"], "moved");
    assert_eq!(os.closed().await.0, 1012);
    // New connections fare the same.
    sent_away(&mut Client::connect(addr).await).await;
    let refused = http(addr, "POST", "/topics/t/events", r#"{"payload":1}"#).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "moved"), "{refused:?}");
    assert!(refused.json()["detail"].as_str().is_some_and(|why| why.contains("2600 ms")), "{refused:?}");
    assert_eq!(refused.header("x-millrace-leader"), None);
    // Reads go on, and probes tell.
    assert_eq!(http(addr, "GET", "/topics/t/offsets", "").await.status, 200);
    assert_eq!(http(addr, "GET", "/readyz", "").await.status, 503);
    let metrics = http(addr, "GET", "/metrics", "").await.body;
    assert!(metrics.contains("millrace_lead_in_doubt 1") && metrics.contains("millrace_lead_doubts_total 1"));

    doubter.tell(None);
    assert_eq!(http(addr, "GET", "/readyz", "").await.status, 200);
    assert_eq!(http(addr, "POST", "/topics/t/events", r#"{"payload":1}"#).await.status, 200);
    let mut bus = Client::connect(addr).await;
    assert_eq!(bus.ask(SUBSCRIBE).await["type"], "OK");
    let delivery = bus.recv().await;
    assert_eq!((&delivery["type"], &delivery["offset"]), (&json!("MESSAGE"), &json!(1)), "{delivery}");
    server.stop().await.unwrap();
}

/// A store that confirms nothing, as one whose engine is away.
struct Away {
    store: MemoryStore,
    is_away: Mutex<bool>,
    back: Condvar,
    /// A commit waits.
    is_asked: AtomicBool,
}

impl Store for Away {
    millrace_conformance::forward_reads_to!(store);

    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        self.back.wait_while(&mut self.is_away.lock(), |is_away| {
            self.is_asked.fetch_or(*is_away, SeqCst);
            *is_away
        });
        self.store.commit(batches)
    }

    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError> {
        self.store.maintain(rows_max)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_under_way_is_told_that_its_outcome_is_not_known() {
    let store = Arc::new(Away {
        store: MemoryStore::new(),
        is_away: Mutex::new(false),
        back: Condvar::new(),
        is_asked: AtomicBool::new(false),
    });
    let mut settings = ServerSettings { metrics_interval_ms: 0, ..ServerSettings::default() };
    // As on every shared store: no task of a connection waits for the engine.
    settings.broker.inline_commits = false;
    let server = start_on(settings, BusLimits::default(), store.clone()).await;
    let (addr, doubter) = (server.addr(), server.lead_doubter());
    *store.is_away.lock() = true;
    let waiting = tokio::spawn(http(addr, "POST", "/topics/t/events", r#"{"payload":1,"id":"one"}"#));
    while !store.is_asked.load(SeqCst) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    doubter.tell(Some("no word from the engine for 2600 ms".to_owned()));
    let answer = waiting.await.unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (503, "storage_failed"), "{answer:?}");
    assert!(answer.json()["detail"].as_str().is_some_and(|why| why.contains("not known")), "{answer:?}");
    *store.is_away.lock() = false;
    store.back.notify_all();
    doubter.tell(None);
    let again = http(addr, "POST", "/topics/t/events", r#"{"payload":1,"id":"one"}"#).await;
    assert_eq!((again.status, &again.json()["offset"]), (200, &json!(1)), "it was stored, and once");
    server.stop().await.unwrap();
}
