//! The one place where events of sessions and handlers are put into batches: ids, lineage, topic rows, state.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{
    Append, BATCH_BYTES_MAX, Batch, Durability, EVENT_BYTES_MAX, Event, EventId, HandlerId, Lineage,
    Namespace, NewEvent, Op, Partition, Reconcile, Space, Timestamp, TopicConfig, TopicKey, TopicName,
    TopicRow, keys, partition_of,
};
use sha2::{Digest, Sha256};

use crate::error::CommitError;
use crate::input::StateChanges;
use crate::spec::OutEvent;

/// How far back the same derived id makes an event a duplicate. Fences keep doubles out already; this is the net below.
pub(crate) const DEDUPE_WINDOW_MS: u64 = 24 * 3600 * 1000;

/// What is known of the topics of a namespace: how many partitions each has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topics(BTreeMap<TopicName, u32>);

impl Topics {
    /// From rows of [`Space::Topics`] whose keys begin with the namespace. Rows that cannot be read are left out: their
    /// topics count as having one partition.
    pub fn from_rows(rows: &[(String, Bytes)]) -> Topics {
        let known = rows.iter().filter_map(|(key, value)| {
            let topic = TopicName::new(TopicKey::parse(key).ok()?.topic()).ok()?;
            Some((topic, TopicRow::decode(key, value).ok()?.config.partitions.max(1)))
        });
        Topics(known.collect())
    }

    /// The same partition the bus would choose for a key; events without one go to the first.
    pub fn partition_of(&self, event: &OutEvent) -> Partition {
        let partitions = self.0.get(&event.topic).copied().unwrap_or(1);
        event.key.as_deref().map_or(Partition(0), |key| partition_of(key, partitions))
    }
}

/// The id that the same event gets on every try.
pub(crate) fn derived_id(kind: &str, parts: &[&str]) -> EventId {
    let mut hash = Sha256::new();
    for part in [&[kind], parts].concat() {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let bits = hash.finalize().iter().take(16).fold(0u128, |bits, byte| bits << 8 | u128::from(*byte));
    // Version 8 of UUIDs is the one for ids that are made by a rule of their own.
    EventId::Uuid(bits & !(0xf << 76 | 0b11 << 62) | 0x8 << 76 | 0b10 << 62)
}

/// The lineage of an event caused by another.
pub(crate) fn caused_by(cause: &Event) -> Lineage {
    let lineage = &cause.body.lineage;
    Lineage {
        root: Some(lineage.root.clone().unwrap_or_else(|| cause.id.clone())),
        depth: lineage.depth.saturating_add(1),
        causation: Some(cause.id.clone()),
        correlation: lineage.correlation.clone(),
    }
}

pub(crate) fn depth_allowed(lineage: &Lineage, limit: u32) -> Result<(), CommitError> {
    if lineage.depth > limit {
        return Err(CommitError::EventLoopLimit { depth: lineage.depth, limit });
    }
    Ok(())
}

/// Operations that append the event; its topic is made if nobody has made it yet.
pub(crate) fn append(
    namespace: &Namespace,
    topics: &Topics,
    event: &OutEvent,
    id: EventId,
    lineage: Lineage,
    nonce: u64,
) -> [Op; 2] {
    let topic = TopicKey::new(namespace, &event.topic);
    let config = TopicConfig { partitions: 1, ..TopicConfig::default() };
    let row = TopicRow { config, made: nonce };
    let new = NewEvent { id: Some(id), body: Arc::new(event.body(lineage)) };
    [
        Op::PutNew { space: Space::Topics, key: keys::topic(&topic), value: row.encode() },
        Op::Append(Append {
            stream: topic.stream(topics.partition_of(event)),
            event: new,
            dedupe_window_ms: DEDUPE_WINDOW_MS,
            made: None,
        }),
    ]
}

/// Where a commit comes from, which decides the id and the lineage of its event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'a> {
    /// A session outside of handlers.
    Session,
    /// The n-th commit with an event of a handler's try.
    Handler { event: &'a Event, handler: &'a HandlerId, ordinal: u32 },
}

pub(crate) struct Setting<'a> {
    pub(crate) namespace: &'a Namespace,
    pub(crate) topics: &'a Topics,
    pub(crate) max_event_chain_depth: u32,
    pub(crate) max_batch_size: usize,
}

/// The batch of one `commit()`: the caller's checks come first, in their order.
pub(crate) fn commit_batch(
    setting: &Setting<'_>,
    cause: Cause<'_>,
    changes: StateChanges,
    append_event: bool,
    now: Timestamp,
    nonce: u64,
) -> Result<Batch, CommitError> {
    let StateChanges { intents, meta, checks, ops, event } = changes;
    if intents.len() > setting.max_batch_size {
        return Err(CommitError::BatchSizeExceeded { count: intents.len(), limit: setting.max_batch_size });
    }
    let mut batch = Batch { nonce, now, durability: Durability::Fsync, checks, ops };
    let mut events = Vec::new();
    if let Some(event) = event {
        let (id, lineage) = match cause {
            Cause::Session => (EventId::mint(now, nonce, 0), Lineage::default()),
            Cause::Handler { event: cause, handler, ordinal } => {
                let parts = [&cause.id.to_string(), handler.as_str(), &ordinal.to_string()];
                (derived_id("commit", &parts), caused_by(cause))
            }
        };
        depth_allowed(&lineage, setting.max_event_chain_depth)?;
        if append_event {
            events.push(id.clone());
            batch.ops.extend(append(setting.namespace, setting.topics, &event, id, lineage, nonce));
        }
    }
    if !intents.is_empty() {
        let namespace = setting.namespace.clone();
        batch.ops.push(Op::Reconcile(Reconcile { namespace, meta, intents, events }));
    }
    fits(&batch)?;
    Ok(batch)
}

/// Also each event alone: it has to fit again with what is written about it.
pub(crate) fn fits(batch: &Batch) -> Result<(), CommitError> {
    let events = batch.ops.iter().filter_map(|op| match op {
        Op::Append(append) => Some(append.event.body.bytes()),
        _ => None,
    });
    if let Some(bytes) = events.max().filter(|bytes| *bytes > EVENT_BYTES_MAX) {
        return Err(CommitError::TooLarge { bytes, limit: EVENT_BYTES_MAX });
    }
    let bytes = batch.bytes();
    if bytes > BATCH_BYTES_MAX {
        return Err(CommitError::TooLarge { bytes, limit: BATCH_BYTES_MAX });
    }
    Ok(())
}

/// The batch of a session's own `commit()` or `commit_with(event)`, outside of any handler. Its event begins a chain.
pub fn imperative(
    config: &crate::WorkerConfig,
    namespace: &Namespace,
    topics: &Topics,
    changes: StateChanges,
    now: Timestamp,
    nonce: u64,
) -> Result<Batch, CommitError> {
    let setting = Setting {
        namespace,
        topics,
        max_event_chain_depth: config.max_event_chain_depth,
        max_batch_size: config.max_batch_size,
    };
    commit_batch(&setting, Cause::Session, changes, true, now, nonce)
}
