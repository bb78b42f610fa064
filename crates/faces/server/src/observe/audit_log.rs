//! The audit as events: a bounded queue of records that wait to be published.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_broker::BrokerHandle;
use millrace_bus::{NotedPlace, PublishBatch, Reply, Request};
use millrace_model::{AUDIT_TOPIC, EventBody, JsonText, NewEvent, Requester, SYSTEM_PREFIX, TopicKey};
use millrace_wire::http::AuditDoc;
use tokio::sync::mpsc;

use crate::observe::{AuditKind, AuditKinds};

/// Records published by one commit.
const RECORDS_PER_COMMIT_MAX: usize = 256;
/// Longest text in a record that a caller wrote.
const TEXT_CHARS_MAX: usize = 300;

#[derive(Debug)]
pub(crate) struct AuditLog {
    kinds: AuditKinds,
    sender: mpsc::Sender<AuditDoc>,
    counts: Arc<AuditCounts>,
}

#[derive(Debug, Default)]
struct AuditCounts {
    written: AtomicU64,
    dropped: AtomicU64,
    /// The last publish failed, and the log has said so.
    failing: AtomicBool,
}

/// The other end of a [`AuditLog`]: publishes the records that were put into it.
pub(crate) struct AuditWriter {
    receiver: mpsc::Receiver<AuditDoc>,
    counts: Arc<AuditCounts>,
}

impl AuditLog {
    pub(crate) fn new(kinds: AuditKinds, records_max: usize) -> (AuditLog, AuditWriter) {
        let (sender, receiver) = mpsc::channel(records_max.max(1));
        let counts = Arc::<AuditCounts>::default();
        (AuditLog { kinds, sender, counts: counts.clone() }, AuditWriter { receiver, counts })
    }

    pub(crate) fn wants(&self, kind: AuditKind) -> bool {
        self.kinds.has(kind)
    }

    /// Queues a record. Never waits: a record that finds no room is dropped and counted.
    pub(crate) fn put(&self, kind: AuditKind, mut doc: AuditDoc) {
        let of_server = doc.topic.as_deref().is_some_and(|topic| topic.starts_with(SYSTEM_PREFIX));
        if !self.wants(kind) || of_server {
            return;
        }
        for text in [&mut doc.what, &mut doc.why].into_iter().flatten() {
            if let Some((end, _)) = text.char_indices().nth(TEXT_CHARS_MAX) {
                text.truncate(end);
            }
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        doc.ts = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        if self.sender.try_send(doc).is_err() {
            self.counts.dropped.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn written(&self) -> u64 {
        self.counts.written.load(Relaxed)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.counts.dropped.load(Relaxed)
    }
}

/// Makes a record about an event of a group.
pub(crate) fn about(kind: &str, at: &NotedPlace) -> AuditDoc {
    AuditDoc {
        kind: kind.to_owned(),
        namespace: Some(at.topic.namespace().to_owned()),
        topic: Some(at.topic.topic().to_owned()),
        group: Some(at.group.as_str().to_owned()),
        partition: Some(at.partition.0),
        offset: Some(at.offset.0),
        ..AuditDoc::default()
    }
}

impl AuditWriter {
    /// Runs until the server has ended.
    pub(crate) async fn run(mut self, handle: BrokerHandle) {
        let Ok(topic) = TopicKey::parse(&format!("default/{AUDIT_TOPIC}")) else { return };
        let mut docs = Vec::new();
        while self.receiver.recv_many(&mut docs, RECORDS_PER_COMMIT_MAX).await > 0 {
            let events: Vec<NewEvent> = docs.drain(..).filter_map(|doc| event(&doc)).collect();
            let count = events.len() as u64;
            let request = Request::Record(PublishBatch { topic: topic.clone(), events });
            match handle.call(Requester::Trusted, request).await {
                Ok(Reply::PublishedBatch { .. }) => {
                    self.counts.failing.store(false, Relaxed);
                    self.counts.written.fetch_add(count, Relaxed);
                }
                Ok(other) => {
                    self.counts.dropped.fetch_add(count, Relaxed);
                    if !self.counts.failing.swap(true, Relaxed) {
                        tracing::warn!(answer = ?other, "the audit could not be published");
                    }
                }
                Err(_) => return,
            }
        }
    }
}

fn event(doc: &AuditDoc) -> Option<NewEvent> {
    let payload = JsonText::from_value(doc).ok()?;
    Some(NewEvent { id: None, body: Arc::new(EventBody::of(payload)) })
}
