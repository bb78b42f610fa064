//! `Handle::without_inline_commits`: for tasks that may run where tokio does not allow blocking.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use millrace_broker::{Broker, BrokerSettings};
use millrace_bus::{BusLimits, Publish, Reply, Request};
use millrace_model::{EventBody, JsonText, NewEvent, Requester, TopicKey};
use millrace_store::{MemoryStore, Store};
use tokio::task::LocalSet;

fn publish() -> Request {
    let event = NewEvent { id: None, body: Arc::new(EventBody::of(JsonText::parse("1").unwrap())) };
    Request::Publish(Publish { topic: TopicKey::parse("default/t").unwrap(), event, deliver_at: None })
}

/// Inside a `LocalSet` of a multi-threaded runtime, `block_in_place` panics: no task there may be asked to commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn inside_a_local_set_publishes_are_the_crews_to_commit() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let runtime = Broker::start(BrokerSettings::default(), &store, BusLimits::default()).unwrap();
    let handle = runtime.handle().without_inline_commits();
    LocalSet::new()
        .run_until(async {
            for _ in 0..100 {
                assert!(matches!(
                    handle.call(Requester::Trusted, publish()).await,
                    Ok(Reply::Published { .. })
                ));
            }
        })
        .await;
    tokio::task::spawn_blocking(|| runtime.end()).await.unwrap();
}
