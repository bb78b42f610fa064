//! Batches for what people do by hand: send an event again, switch a schedule, forget a handler.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{
    Batch, Check, DeadLetterRow, Durability, Event, EventId, HandlerId, Headers, JsonText, Lineage,
    NameError, Namespace, Op, RowError, ScheduleRow, Space, Timestamp, TopicName, keys,
};

use crate::build::{Topics, append};
use crate::input::Look;
use crate::spec::OutEvent;

/// The header that says which event a replayed one is a copy of.
pub const REPLAYED_FROM: &str = "x-replayed-from";

fn batch(now: Timestamp, nonce: u64, checks: Vec<Check>, ops: Vec<Op>) -> Batch {
    Batch { nonce, now, durability: Durability::Fsync, checks, ops }
}

/// A copy of an event as a new event: its own id, the root of its own chain. Every handler of its type gets it.
/// Answers the id the copy will have.
pub fn replay_event(
    namespace: &Namespace,
    topics: &Topics,
    event: &Event,
    now: Timestamp,
    nonce: u64,
) -> Result<(EventId, Batch), NameError> {
    let out = OutEvent {
        topic: TopicName::new(event.stream.topic.topic())?,
        payload: event.body.payload.clone(),
        priority: event.body.priority,
        key: event.body.key.as_deref().map(str::to_owned),
        headers: event.body.headers.as_ref().map(Headers::to_map),
    };
    Ok(copy(namespace, topics, out, &event.id, now, nonce))
}

/// The event of a dead letter as a new event. The dead letter goes in the same batch, so that nobody replays it twice:
/// if somebody was faster, the batch is refused. A letter without a copy needs the event itself.
pub fn replay_dead_letter(
    namespace: &Namespace,
    topics: &Topics,
    key: &str,
    value: &Bytes,
    event: Option<&Event>,
    now: Timestamp,
    nonce: u64,
) -> Result<(EventId, Batch), ReplayError> {
    let row = DeadLetterRow::decode(key, value)?;
    let json = |text: String| Bytes::from(text.into_bytes());
    let (id, mut batch) = match (row.payload, event.filter(|event| event.id == row.event_id)) {
        (Some(payload), _) => {
            let out = OutEvent {
                topic: TopicName::new(&row.event_type)?,
                payload: JsonText::from_stored(json(payload)),
                priority: row.priority,
                key: row.key,
                headers: row.headers.map(|text| Headers::from_stored(json(text)).to_map()),
            };
            copy(namespace, topics, out, &row.event_id, now, nonce)
        }
        (None, Some(event)) => replay_event(namespace, topics, event, now, nonce)?,
        (None, None) => return Err(ReplayError::NoCopy(row.event_id)),
    };
    let space = Space::DeadLetters;
    batch.checks.push(Check::Equals { space, key: key.to_owned(), value: value.clone() });
    batch.ops.push(Op::Delete { space, key: key.to_owned() });
    Ok((id, batch))
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("the dead letter cannot be read: {0}")]
    Row(#[from] RowError),
    #[error("the dead letter names no event type: {0}")]
    Name(#[from] NameError),
    #[error(
        "event {0} was too large to be copied into its dead letter, and is not in the log any more: delete the letter"
    )]
    NoCopy(EventId),
}

fn copy(
    namespace: &Namespace,
    topics: &Topics,
    mut out: OutEvent,
    from: &EventId,
    now: Timestamp,
    nonce: u64,
) -> (EventId, Batch) {
    out.headers.get_or_insert_with(BTreeMap::new).insert(REPLAYED_FROM.to_owned(), from.to_string());
    let id = EventId::mint(now, nonce, 0);
    let ops = append(namespace, topics, &out, id.clone(), Lineage::default(), nonce).to_vec();
    (id, batch(now, nonce, Vec::new(), ops))
}

/// Switches a schedule. Switched on again it counts from now: what it missed meanwhile does not fire.
pub fn set_schedule_enabled(
    namespace: &Namespace,
    name: &str,
    value: &Bytes,
    enabled: bool,
    now: Timestamp,
    nonce: u64,
) -> Result<Batch, RowError> {
    let key = keys::schedule(namespace, name);
    let old = ScheduleRow::decode(&key, value)?;
    let last = if enabled && !old.enabled { old.last.max(now) } else { old.last };
    let row = ScheduleRow { enabled, last, ..old };
    let checks = vec![Check::Equals { space: Space::Schedules, key: key.clone(), value: value.clone() }];
    let ops = vec![Op::Put { space: Space::Schedules, key, value: row.encode() }];
    Ok(batch(now, nonce, checks, ops))
}

/// Forgetting a handler that will not come back, in slices: its row first, so that retention no longer waits for it,
/// then its open claims and its lanes. Rows of what it finished go with their events.
#[derive(Debug)]
pub struct Forget {
    namespace: Namespace,
    handler: HandlerId,
    left: Vec<Space>,
    rows_max: usize,
    began: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ForgetStep {
    /// Answer with [`Forget::seen`], then commit the operations it gives if there are any, then ask again.
    Look(Look),
    Commit(Vec<Op>),
    Done,
}

impl Forget {
    pub fn new(namespace: Namespace, handler: HandlerId, rows_max: usize) -> Forget {
        Forget { namespace, handler, left: vec![Space::Lanes, Space::Claims], rows_max, began: false }
    }

    pub fn step(&mut self) -> ForgetStep {
        if !self.began {
            self.began = true;
            let key = keys::handler(&self.namespace, &self.handler);
            return ForgetStep::Commit(vec![Op::Delete { space: Space::Handlers, key }]);
        }
        let Some(space) = self.left.last() else { return ForgetStep::Done };
        let from = keys::claims_of(self.namespace.as_str(), &self.handler);
        // The character after the slash.
        let to = format!("{}0", from.trim_end_matches('/'));
        ForgetStep::Look(Look::Rows { space: *space, from, to, rows_max: self.rows_max })
    }

    pub fn seen(&mut self, rows: &[(String, Bytes)]) -> Vec<Op> {
        let Some(space) = self.left.last().copied() else { return Vec::new() };
        if rows.len() < self.rows_max {
            self.left.pop();
        }
        rows.iter().map(|(key, _)| Op::Delete { space, key: key.clone() }).collect()
    }
}
