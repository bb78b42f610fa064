//! The tests' harness (`Harness`): a loop with a bus, clients, and child processes written for each test.

// Each test file uses its own part of the harness.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_broker::{Broker, BrokerSettings};
use millrace_bus::{BusLimits, Reply, Request};
use millrace_kernel::{
    Capability, ChildLimits, ChildSettings, Children, FeedLimits, Feeds, LoopHandle, LoopParts, LoopSettings,
    OsReceiver, OsSender, bus,
};
use millrace_model::OsMessage;
use millrace_store::{MemoryStore, Store};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Handle;

pub(crate) struct Harness {
    pub(crate) handle: LoopHandle,
    pub(crate) runtime: Broker,
    pub(crate) children: Children,
    folder: TempDir,
}

/// Short waits where they cost time, long ones where a busy machine needs them.
pub(crate) fn limits() -> ChildLimits {
    ChildLimits { restart_pause_ms: 10, manifest_ms: 60_000, ..ChildLimits::default() }
}

impl Harness {
    pub(crate) async fn new() -> Harness {
        Harness::with(limits(), BusLimits::default(), Vec::new()).await
    }

    pub(crate) async fn with(limits: ChildLimits, bus_limits: BusLimits, more: Vec<Capability>) -> Harness {
        Harness::with_settings(LoopSettings::default(), limits, bus_limits, more).await
    }

    pub(crate) async fn with_settings(
        settings: LoopSettings,
        limits: ChildLimits,
        bus_limits: BusLimits,
        mut more: Vec<Capability>,
    ) -> Harness {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let runtime = Broker::start(BrokerSettings::default(), &store, bus_limits).expect("a bus");
        let feeds = Feeds::new(runtime.handle(), Handle::current(), FeedLimits::default(), None);
        let parts = LoopParts {
            settings,
            nonce: 7,
            clock: millrace_broker::SystemClock::start(millrace_model::CLOCK_SETTLE_MS),
            runtime: Handle::current(),
            rows: None,
            timers: Vec::new(),
            bus_feed: Some(feeds.bus_feed()),
            check_token: None,
            vouch: None,
            watch: None,
            records: None,
        };
        more.push(bus(feeds));
        let (handle, _) = LoopHandle::start(parts, more).await.expect("the loop starts");
        let children = Children::new(handle.clone(), limits);
        Harness { handle, runtime, children, folder: TempDir::new().expect("a folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A child in Python: `body` handles each `message`, and may call `say` and `answer`.
    pub(crate) fn script(&self, name: &str, manifest: &Value, body: &str) -> ChildSettings {
        let path = self.path(&format!("{name}.py"));
        let body = body.lines().fold(String::new(), |all, line| all + "    " + line + "\n");
        let text = format!(
            "import json, os, sys, time\n\
             def say(message):\n    print(json.dumps(message), flush=True)\n\
             def answer(kind, data):\n    \
                 say({{'kind': kind, 'type': message['type'], 'data': data, 'metadata': {{'causation': message['metadata']['id']}}}})\n\
             say(json.loads({manifest:?}))\n\
             for line in sys.stdin:\n    message = json.loads(line)\n{body}",
            manifest = manifest.to_string(),
        );
        std::fs::write(&path, text).expect("a script");
        python(name, &path)
    }

    pub(crate) async fn run(&mut self, settings: Vec<ChildSettings>) {
        self.children.become_these(settings).await.expect("they start");
    }

    pub(crate) async fn client(&self) -> Client {
        let (sender, receiver) = self.handle.open(None).await.expect("the loop runs");
        Client { sender, receiver, next: 0 }
    }

    /// The group's commit in the topic's only partition.
    pub(crate) async fn committed(&self, topic: &str, group: &str) -> u64 {
        let topic = millrace_model::TopicKey::parse(&format!("default/{topic}")).expect("a topic");
        match self.runtime.handle().call(Request::Offsets { topic }).await.expect("the bus runs") {
            Reply::Offsets(view) => {
                let group = millrace_model::Group::new(group).expect("a group");
                view.partitions[0].1.get(&group).map_or(0, |view| view.committed.0)
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn python(name: &str, path: &Path) -> ChildSettings {
    command(name, &["python3", path.to_str().expect("UTF-8")])
}

pub(crate) fn command(name: &str, command: &[&str]) -> ChildSettings {
    ChildSettings {
        name: name.to_owned(),
        command: command.iter().map(|&word| word.to_owned()).collect(),
        restart: true,
        env: std::collections::BTreeMap::default(),
        cwd: None,
    }
}

pub(crate) fn example(name: &str, program: &str, path: &str) -> ChildSettings {
    let path = format!("{}/../../../examples/capabilities/{path}", env!("CARGO_MANIFEST_DIR"));
    command(name, &[program, &path])
}

/// The manifest of a child that handles a single query, `NAME.Do`.
pub(crate) fn doer(name: &str) -> Value {
    json!({"name": name, "inbound": [{"kind": "query", "type": format!("{name}.Do")}]})
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
