//! Batches that bring a finished event back: a dead letter is replayed to the handler that gave up, or an event is
//! published again for every handler.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{
    Batch, Check, ClaimRow, ClaimState, DeadLetterRow, Ending, Event, EventId, FinishedRow, HandlerId,
    HandlerRow, Headers, JsonText, Lineage, NameError, Namespace, Op, OrderKey, Partition, RowError, Space,
    Stream, Ticket, Timestamp, TopicKey, TopicName, keys,
};

use crate::admin::manage::batch;
use crate::commits::batch_builder::Topics;
use crate::commits::event_writer::append;
use crate::interface::spec::OutEvent;

/// The header that names the event of which an event is a copy.
pub const REPLAYED_FROM: &str = "x-replayed-from";

/// A dead letter, with the store's rows about its event and its handler, read for a replay.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub key: String,
    pub value: Bytes,
    pub row: DeadLetterRow,
    pub stream: Stream,
    /// The event, if it is still in the log.
    pub event: Option<std::sync::Arc<Event>>,
    /// The row of the handler, if it is known.
    pub handler: Option<Bytes>,
    /// The row that records how the event ended for the handler.
    pub finished: Option<Bytes>,
    /// The handler has an open claim on the event, or has not reached it yet.
    pub is_open: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("the dead letter cannot be read: {0}")]
    Row(#[from] RowError),
    #[error("the dead letter names no event type: {0}")]
    Name(#[from] NameError),
    #[error(
        "event {event} is not in the log any more, so handler {handler} cannot have it again: publish it again \
         from the copy in its dead letter, as a new event for every handler (dead-letters --publish-again {event})"
    )]
    EventGone { event: EventId, handler: HandlerId },
    #[error(
        "event {0} was too large to be copied into its dead letter, and is not in the log any more: delete the letter"
    )]
    NoCopy(EventId),
    #[error(
        "handler {handler} is not known in this namespace any more: start a session with it, or publish event \
         {event} again for every handler (dead-letters --publish-again {event})"
    )]
    UnknownHandler { event: EventId, handler: HandlerId },
    #[error(
        "handler {handler} takes {now} now, event {event} is of type {then}: publish it again for every handler of \
         that type (dead-letters --publish-again {event})"
    )]
    OtherTopic { event: EventId, handler: HandlerId, then: String, now: String },
    #[error("handler {handler} has event {event} before it already: delete the letter when it is done")]
    Open { event: EventId, handler: HandlerId },
    #[error("handler {handler} has finished event {event} since this letter was written: delete the letter")]
    Finished { event: EventId, handler: HandlerId },
}

impl DeadLetter {
    pub fn stream_of(namespace: &Namespace, row: &DeadLetterRow) -> Result<Stream, NameError> {
        let topic = TopicKey::new(namespace, &TopicName::new(&row.event_type)?);
        Ok(topic.stream(Partition(row.partition)))
    }

    /// Opens the handler's claim on the same event again, with all its attempts. Nothing is published, and no other
    /// handler sees anything. The dead letter is deleted when the claim has ended. The batch checks the rows that were
    /// read, so of two concurrent replays one is refused, and so is a replay of a handler that was forgotten meanwhile.
    pub fn replay(&self, namespace: &Namespace, now: Timestamp, nonce: u64) -> Result<Batch, ReplayError> {
        let row = &self.row;
        let (event, handler) = (row.event_id.clone(), row.handler.clone());
        let Some(stored) = &self.event else {
            return Err(match row.payload {
                Some(_) => ReplayError::EventGone { event, handler },
                None => ReplayError::NoCopy(event),
            });
        };
        let handler_key = keys::handler(namespace, &handler);
        let Some(known) = &self.handler else { return Err(ReplayError::UnknownHandler { event, handler }) };
        let topic = HandlerRow::decode(&handler_key, known)?.topic;
        if topic != row.event_type {
            let (then, now) = (row.event_type.clone(), topic);
            return Err(ReplayError::OtherTopic { event, handler, then, now });
        }
        if self.is_open {
            return Err(ReplayError::Open { event, handler });
        }
        let finished_key = keys::finished(&self.stream, row.offset, &handler);
        let Some(finished) = &self.finished else { return Err(ReplayError::Finished { event, handler }) };
        let ended = FinishedRow::decode(&finished_key, finished)?;
        // A handler that was forgotten and came back may have ended the event in another way, or given up on it once
        // more.
        if (ended.ending, ended.at) != (Ending::DeadLettered, row.failed_at) {
            return Err(ReplayError::Finished { event, handler });
        }
        let equals = |space, key: &String, value: &Bytes| {
            let (key, value) = (key.clone(), value.clone());
            Check::Equals { space, key, value }
        };
        let checks = vec![
            equals(Space::DeadLetters, &self.key, &self.value),
            equals(Space::Finished, &finished_key, finished),
            equals(Space::Handlers, &handler_key, known),
        ];
        let claim = self.claim(stored, now, nonce);
        let ops = vec![
            Op::Delete { space: Space::Finished, key: finished_key },
            claim.put(),
            // Makes a sweep of retention that has already read the claims read them again.
            Op::Put {
                space: Space::Kv,
                key: keys::handlers_mark(namespace),
                value: nonce.to_string().into(),
            },
        ];
        Ok(batch(now, nonce, checks, ops))
    }

    fn claim(&self, event: &Event, now: Timestamp, nonce: u64) -> Ticket {
        let row = ClaimRow {
            // Generations that are counted up never get this high, so no earlier ticket becomes valid again.
            generation: nonce >> 1,
            state: ClaimState::Waiting,
            due: now,
            for_ms: Some(0),
            claimed_at: self.row.failed_at,
            steps: self.row.steps,
            priority: event.body.priority,
            ts: event.ts,
            letter: Some(self.key.clone()),
            order_key: Some(OrderKey::of(event.body.key.as_deref())),
            ..ClaimRow::default()
        };
        let (handler, stream) = (self.row.handler.clone(), self.stream.clone());
        Ticket { handler, stream, offset: self.row.offset, row }
    }

    /// Undoes a replay that retention has overtaken: the event was removed between reading it and the commit. Without
    /// its claim the dead letter is listed again.
    pub fn undo(&self, now: Timestamp, nonce: u64, replayed: &Batch) -> Batch {
        let claims = replayed.ops.iter().filter_map(|op| match op {
            Op::Put { space: Space::Claims, key, .. } => Some(key.clone()),
            _ => None,
        });
        let ops = claims.map(|key| Op::Delete { space: Space::Claims, key }).collect();
        batch(now, nonce, Vec::new(), ops)
    }

    /// Publishes the event as a new event for every handler of its type. The same batch deletes the dead letter: if
    /// somebody else did so first, the batch is refused. A dead letter without a copy needs the event itself.
    pub fn publish_again(
        &self,
        namespace: &Namespace,
        topics: &Topics,
        now: Timestamp,
        nonce: u64,
    ) -> Result<(EventId, Batch), ReplayError> {
        let row = &self.row;
        let json = |text: &String| Bytes::copy_from_slice(text.as_bytes());
        let (id, mut batch) = match (&row.payload, &self.event) {
            (Some(payload), _) => {
                let out = OutEvent {
                    topic: TopicName::new(&row.event_type)?,
                    payload: JsonText::from_stored(json(payload)),
                    priority: row.priority,
                    key: row.key.clone(),
                    headers: row.headers.as_ref().map(|text| Headers::from_stored(json(text)).to_map()),
                    deliver_at: None,
                };
                copy(namespace, topics, out, &row.event_id, now, nonce)
            }
            (None, Some(event)) => publish_again(namespace, topics, event, now, nonce)?,
            (None, None) => return Err(ReplayError::NoCopy(row.event_id.clone())),
        };
        let (space, key) = (Space::DeadLetters, self.key.clone());
        batch.checks.push(Check::Equals { space, key: key.clone(), value: self.value.clone() });
        batch.ops.push(Op::Delete { space, key });
        Ok((id, batch))
    }
}

/// Publishes a copy of an event as a new event, with an id of its own, at the root of a chain of its own. Every handler
/// of its type gets the copy. Returns the id of the copy.
pub fn publish_again(
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
        deliver_at: None,
    };
    Ok(copy(namespace, topics, out, &event.id, now, nonce))
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
