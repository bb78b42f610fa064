//! The tests' harness (`Harness`): a loop with a bus, and clients. The tests of `millrace-child` include this file.

// Each test file uses its own part of the harness.
#![allow(dead_code)]

use std::sync::Arc;
use std::time::Duration;

use millrace_broker::{Broker, BrokerSettings};
use millrace_bus::{BusLimits, Reply, Request};
use millrace_kernel::{
    Capability, FeedLimits, Feeds, KernelHandle, KernelParts, KernelSettings, OsReceiver, OsSender, bus,
};
use millrace_model::{OsMessage, Requester, TopicKey};
use millrace_store::{MemoryStore, Store};
use serde_json::{Value, json};
use tokio::runtime::Handle;

pub(crate) struct Harness {
    pub(crate) handle: KernelHandle,
    pub(crate) runtime: Broker,
}

impl Harness {
    pub(crate) async fn new() -> Harness {
        Harness::with(BusLimits::default(), Vec::new()).await
    }

    pub(crate) async fn with(bus_limits: BusLimits, more: Vec<Capability>) -> Harness {
        Harness::with_settings(KernelSettings::default(), bus_limits, more).await
    }

    pub(crate) async fn with_settings(
        settings: KernelSettings,
        bus_limits: BusLimits,
        mut more: Vec<Capability>,
    ) -> Harness {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let runtime = Broker::start(BrokerSettings::default(), &store, bus_limits).expect("a bus");
        let feeds = Feeds::new(runtime.handle(), Handle::current(), FeedLimits::default(), None);
        let parts = KernelParts {
            settings,
            nonce: 7,
            clock: millrace_broker::SystemClock::start(millrace_model::CLOCK_SETTLE_MS),
            runtime: Handle::current(),
            rows: None,
            timers: Vec::new(),
            bus_feed: Some(feeds.bus_feed()),
            check_token: None,
            check_sender: None,
            audit_hook: None,
            records: None,
        };
        more.push(bus(feeds));
        let (handle, _) = KernelHandle::start(parts, more).await.expect("the loop starts");
        Harness { handle, runtime }
    }

    pub(crate) async fn client(&self) -> Client {
        let (sender, receiver) = self.handle.open(Requester::Trusted).await.expect("the loop runs");
        Client { sender, receiver, next: 0 }
    }

    /// The group's commit in the topic's only partition.
    pub(crate) async fn committed(&self, topic: &str, group: &str) -> u64 {
        let topic = TopicKey::parse(&format!("default/{topic}")).expect("a topic");
        match self
            .runtime
            .handle()
            .call(Requester::Trusted, Request::Offsets { topic })
            .await
            .expect("the bus runs")
        {
            Reply::Offsets(view) => {
                let group = millrace_model::Group::new(group).expect("a group");
                view.partitions[0].1.get(&group).map_or(0, |view| view.committed.0)
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) struct Client {
    sender: OsSender,
    receiver: OsReceiver,
    next: u64,
}

impl Client {
    /// Sends a message and returns its id.
    pub(crate) async fn send(&mut self, kind: &str, ty: &str, data: &Value) -> String {
        self.next += 1;
        let id = format!("{ty}-{}", self.next);
        let line = json!({"kind": kind, "type": ty, "data": data, "metadata": {"id": id, "timestamp": 1}});
        let message: OsMessage =
            millrace_wire::os::parse(line.to_string().as_bytes(), None).expect("a message");
        self.sender.send(message).await.expect("the loop runs");
        id
    }

    pub(crate) async fn answer(&mut self) -> Value {
        let line = self.receiver.next().await.expect("an answer");
        self.receiver.written(line.len());
        serde_json::from_str(&line).expect("JSON")
    }

    pub(crate) async fn ask(&mut self, kind: &str, ty: &str, data: &Value) -> Value {
        let id = self.send(kind, ty, data).await;
        let answer = self.answer().await;
        assert_eq!(answer["metadata"]["causation"], *id, "{answer}");
        answer
    }

    /// Sends a query and returns the reply's data.
    pub(crate) async fn query(&mut self, ty: &str, data: &Value) -> Value {
        let answer = self.ask("query", ty, data).await;
        assert_eq!(answer["kind"], "reply", "{answer}");
        answer["data"].clone()
    }

    /// Sends a query that must fail, and returns code and text of the error.
    pub(crate) async fn refused(&mut self, ty: &str, data: &Value) -> (u64, String) {
        let id = self.send("query", ty, data).await;
        let answer = self.answer().await;
        assert_eq!(answer["metadata"]["causation"], *id, "{answer}");
        fault(&answer)
    }
}

pub(crate) fn fault(answer: &Value) -> (u64, String) {
    assert_eq!(answer["kind"], "error", "{answer}");
    let data = &answer["data"];
    (data["code"].as_u64().expect("a code"), data["message"].as_str().expect("a text").to_owned())
}

pub(crate) async fn publish(client: &mut Client, data: Value) -> Value {
    let answer = client.ask("command", "Bus.Publish", &data).await;
    assert_eq!(answer["kind"], "reply", "{answer}");
    answer["data"].clone()
}

/// Polls until a group's commit has reached `offset`: nothing reports that an ack has become durable.
pub(crate) async fn until_committed(harness: &Harness, topic: &str, group: &str, offset: u64) {
    while harness.committed(topic, group).await < offset {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Polls until the topic's only group has this many members.
pub(crate) async fn until_members(harness: &Harness, topic: &str, members: usize) {
    let topic = TopicKey::parse(&format!("default/{topic}")).expect("a topic");
    loop {
        let request = Request::ListGroups { topic: topic.clone() };
        if let Reply::Groups(view) =
            harness.runtime.handle().call(Requester::Trusted, request).await.expect("the bus runs")
            && view.groups.first().is_some_and(|group| group.members == members)
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Limits with one attempt for each event.
pub(crate) fn once() -> BusLimits {
    BusLimits { max_attempts: 1, ..BusLimits::default() }
}

pub(crate) async fn no_dead_letters(client: &mut Client, topic: &str) {
    let first = publish(client, json!({"topic": format!("{topic}.DLQ"), "payload": 1})).await;
    assert_eq!(first["offset"], 1, "there are no dead letters: {first}");
}
