//! The only place that puts events of sessions and handlers into batches: ids, lineage, topic rows, state.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{
    BATCH_BYTES_MAX, Batch, Durability, EVENT_BYTES_MAX, Elapsed, Event, EventId, HandlerId, Lineage,
    Namespace, Now, Op, Partition, Reconcile, Timestamp, TopicKey, TopicName, TopicRow, partition_of,
};
use sha2::{Digest, Sha256};

use crate::commits::event_writer::{EventWriter, NewEventId};
use crate::interface::error::CommitError;
use crate::interface::input::StateChanges;
use crate::interface::spec::OutEvent;

/// How long an event with the same derived id counts as a duplicate. Fences keep duplicates out already; this is a
/// second line of defence.
pub(crate) const DEDUPE_WINDOW_MS: u64 = 24 * 3600 * 1000;

/// The known topics of a namespace, with the number of partitions of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topics(BTreeMap<TopicName, u32>);

impl Topics {
    /// Reads rows of [`Space::Topics`] whose keys begin with the namespace. Unreadable rows are left out: their topics
    /// count as having one partition.
    pub fn from_rows(rows: &[(String, Bytes)]) -> Topics {
        let known = rows.iter().filter_map(|(key, value)| {
            let topic = TopicName::new(TopicKey::parse(key).ok()?.topic()).ok()?;
            Some((topic, TopicRow::decode(key, value).ok()?.config.partitions.max(1)))
        });
        Topics(known.collect())
    }

    /// Returns the partition that the bus would choose for the event's key; events without a key go to the first
    /// partition.
    pub fn partition_of(&self, event: &OutEvent) -> Partition {
        let partitions = self.0.get(&event.topic).copied().unwrap_or(1);
        event.key.as_deref().map_or(Partition(0), |key| partition_of(key, partitions))
    }
}

/// Derives the id of an event from its cause, so that every attempt gives it the same id.
pub(crate) fn derived_id(kind: &str, parts: &[&str]) -> EventId {
    let mut hash = Sha256::new();
    for part in [&[kind], parts].concat() {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let bits = hash.finalize().iter().take(16).fold(0u128, |bits, byte| bits << 8 | u128::from(*byte));
    // Version 8 of UUIDs is for ids made by an application's own rule.
    EventId::Uuid(bits & !(0xf << 76 | 0b11 << 62) | 0x8 << 76 | 0b10 << 62)
}

/// The most commits, events and dead letters of one run that [`is_made_by`] recognises.
const ORDINALS_MAX: u32 = 16;

/// Whether a handler made the event `id` while it handled the event `cause`. A handler that makes very many events for
/// one event is recognised as the author of the first of them only.
pub fn is_made_by(id: &EventId, cause: &EventId, handler: &HandlerId) -> bool {
    let cause = cause.to_string();
    is_derived(id)
        && (0..ORDINALS_MAX).any(|ordinal| {
            let parts = [&cause, handler.as_str(), &ordinal.to_string()];
            ["emit", "commit", "dead letter"].into_iter().any(|kind| derived_id(kind, &parts) == *id)
        })
}

/// Whether the event `id` is the fire of a schedule that was planned for `at`.
pub fn is_fire_of(id: &EventId, namespace: &Namespace, schedule: &str, at: Timestamp) -> bool {
    is_derived(id) && derived_id("schedule", &[namespace.as_str(), schedule, &at.0.to_string()]) == *id
}

/// Whether the id is of version 8, as those of [`derived_id`] are.
fn is_derived(id: &EventId) -> bool {
    matches!(id, EventId::Uuid(bits) if bits >> 76 & 0xf == 8)
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

/// The origin of a commit, which decides the id and the lineage of its event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'a> {
    /// A session, outside of handlers.
    Session,
    /// A handler's attempt; `ordinal` counts its commits with an event.
    Handler { event: &'a Event, handler: &'a HandlerId, ordinal: u32 },
}

pub(crate) struct CommitContext<'a> {
    pub(crate) namespace: &'a Namespace,
    pub(crate) topics: &'a Topics,
    pub(crate) max_event_chain_depth: u32,
    pub(crate) max_batch_size: usize,
}

/// Builds the batch of one `commit()`. The caller's own checks come first, in their order, then those of `expected`.
pub(crate) fn commit_batch(
    context: &CommitContext<'_>,
    cause: Cause<'_>,
    changes: StateChanges,
    append_event: bool,
    (now, elapsed): (Now, &mut Elapsed),
    nonce: u64,
) -> Result<Batch, CommitError> {
    let StateChanges { intents, meta, mut checks, ops, event, expected } = changes;
    if intents.len() > context.max_batch_size {
        return Err(CommitError::BatchSizeExceeded { count: intents.len(), limit: context.max_batch_size });
    }
    checks.extend(expected.iter().map(|expected| expected.check(context.namespace)));
    let mut batch = Batch { nonce, now: now.wall, durability: Durability::Fsync, checks, ops };
    let mut events = Vec::new();
    if let Some(event) = event {
        let (id, lineage) = match cause {
            Cause::Session => (EventId::mint(now.wall, nonce, 0), Lineage::default()),
            Cause::Handler { event: cause, handler, ordinal } => {
                let parts = [&cause.id.to_string(), handler.as_str(), &ordinal.to_string()];
                (derived_id("commit", &parts), caused_by(cause))
            }
        };
        depth_allowed(&lineage, context.max_event_chain_depth)?;
        if append_event {
            events.push(id.clone());
            let id = NewEventId { id, may_repeat: matches!(cause, Cause::Handler { .. }) };
            let mut writer = EventWriter::new(context.namespace, context.topics, now, elapsed);
            batch.ops.extend(writer.ops(&event, id, lineage, (nonce, 0))?);
        }
    }
    if !intents.is_empty() {
        let namespace = context.namespace.clone();
        batch.ops.push(Op::Reconcile(Reconcile { namespace, meta, intents, events }));
    }
    fits(&batch)?;
    Ok(batch)
}

/// Checks the size of the batch, and of each event alone: later batches must hold the event together with rows about
/// it.
pub(crate) fn fits(batch: &Batch) -> Result<(), CommitError> {
    let events = batch.ops.iter().filter_map(|op| match op {
        Op::Append(append) => Some(append.event.body.bytes()),
        Op::Delay(_) => Some(op.bytes()),
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

/// An event that a session publishes outside of any handler. Without an id, one is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnEvent {
    pub event: OutEvent,
    /// Events with the same id within [`DEDUPE_WINDOW_MS`] are stored once.
    pub id: Option<EventId>,
}

/// Builds the batch of a session's own commit with any number of events, each of which begins a chain. `changes.event`
/// is ignored.
pub fn imperative_events(
    config: &crate::WorkerConfig,
    namespace: &Namespace,
    topics: &Topics,
    changes: StateChanges,
    events: Vec<OwnEvent>,
    (now, elapsed): (Now, &mut Elapsed),
    nonce: u64,
) -> Result<Batch, CommitError> {
    let limit = config.max_batch_size;
    if changes.intents.len().max(events.len()) > limit {
        return Err(CommitError::BatchSizeExceeded { count: changes.intents.len().max(events.len()), limit });
    }
    let StateChanges { intents, meta, mut checks, ops, expected, event: _ } = changes;
    checks.extend(expected.iter().map(|expected| expected.check(namespace)));
    let mut batch = Batch { nonce, now: now.wall, durability: Durability::Fsync, checks, ops };
    let mut ids = Vec::with_capacity(events.len());
    let mut writer = EventWriter::new(namespace, topics, now, elapsed);
    for (at, OwnEvent { event, id }) in (0..).zip(events) {
        let may_repeat = id.is_some();
        let id = id.unwrap_or_else(|| EventId::mint(now.wall, nonce, at));
        ids.push(id.clone());
        batch.ops.extend(writer.ops(
            &event,
            NewEventId { id, may_repeat },
            Lineage::default(),
            (nonce, at),
        )?);
    }
    if !intents.is_empty() {
        let namespace = namespace.clone();
        batch.ops.push(Op::Reconcile(Reconcile { namespace, meta, intents, events: ids }));
    }
    fits(&batch)?;
    Ok(batch)
}

/// Builds the batch of a session's own `commit()` or `commit_with(event)`, outside of any handler. Its event begins a
/// chain.
pub fn imperative(
    config: &crate::WorkerConfig,
    namespace: &Namespace,
    topics: &Topics,
    changes: StateChanges,
    (now, elapsed): (Now, &mut Elapsed),
    nonce: u64,
) -> Result<Batch, CommitError> {
    let context = CommitContext {
        namespace,
        topics,
        max_event_chain_depth: config.max_event_chain_depth,
        max_batch_size: config.max_batch_size,
    };
    commit_batch(&context, Cause::Session, changes, true, (now, elapsed), nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maker_of_an_event_is_told_by_its_id() {
        let (bill, ship) = (HandlerId::new("shop:bill").unwrap(), HandlerId::new("shop:ship").unwrap());
        let cause = EventId::mint(Timestamp(1), 2, 3);
        let made = |kind: &str, ordinal: u32| {
            derived_id(kind, &[&cause.to_string(), bill.as_str(), &ordinal.to_string()])
        };
        for id in [made("emit", 0), made("commit", 3), made("dead letter", 1)] {
            assert!(is_made_by(&id, &cause, &bill));
            assert!(!is_made_by(&id, &cause, &ship) && !is_made_by(&id, &id, &bill));
        }
        assert!(!is_made_by(&made("emit", ORDINALS_MAX), &cause, &bill), "beyond what is tried");
        assert!(!is_made_by(&cause, &cause, &bill), "an id that was drawn");
        let namespace = Namespace::default();
        let fire = derived_id("schedule", &[namespace.as_str(), "nightly", "60000"]);
        assert!(is_fire_of(&fire, &namespace, "nightly", Timestamp(60_000)));
        assert!(!is_fire_of(&fire, &namespace, "nightly", Timestamp(60_001)));
        assert!(!is_fire_of(&fire, &namespace, "daily", Timestamp(60_000)));
    }
}
