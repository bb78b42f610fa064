//! Writes events into a batch: appended at once, or as delayed events.

use std::sync::Arc;

use millrace_model::{
    Append, Delay, DeliverAt, DueBy, DueRow, Durability, ELAPSED_APART_MS, Elapsed, EventId, Lineage,
    Namespace, NewEvent, Now, Op, Space, TICK_MS, Timestamp, TopicConfig, TopicKey, TopicRow, keys,
};

use crate::commits::batch_builder::{DEDUPE_WINDOW_MS, Topics};
use crate::interface::error::CommitError;
use crate::interface::spec::OutEvent;

/// How far ahead a delayed event may be: a year.
pub const DELAY_MS_MAX: u64 = 365 * 24 * 3600 * 1000;

/// Everything that the events of one batch need: their namespace and topics, and the clocks that delays are counted
/// from.
pub(crate) struct EventWriter<'a> {
    namespace: &'a Namespace,
    topics: &'a Topics,
    now: Now,
    elapsed: &'a mut Elapsed,
    /// The batch already stores the elapsed time: once is enough.
    elapsed_written: bool,
}

/// The id of an event that is written.
pub(crate) struct NewEventId {
    pub(crate) id: EventId,
    /// The same id may be written again: its author chose it, or it is derived. Drawn ids are unique.
    pub(crate) may_repeat: bool,
}

impl<'a> EventWriter<'a> {
    pub(crate) fn new(
        namespace: &'a Namespace,
        topics: &'a Topics,
        now: Now,
        elapsed: &'a mut Elapsed,
    ) -> EventWriter<'a> {
        EventWriter { namespace, topics, now, elapsed, elapsed_written: false }
    }

    /// Returns the operations that store the event; they also create its topic if it does not exist. `nonce` and
    /// `ordinal` together are unique.
    pub(crate) fn ops(
        &mut self,
        event: &OutEvent,
        NewEventId { id, may_repeat }: NewEventId,
        lineage: Lineage,
        (nonce, ordinal): (u64, u32),
    ) -> Result<Vec<Op>, CommitError> {
        let Some((by, due)) = self.due(event)? else {
            return Ok(append(self.namespace, self.topics, event, id, lineage, nonce).to_vec());
        };
        let topic = TopicKey::new(self.namespace, &event.topic);
        let stream = topic.stream(self.topics.partition_of(event));
        let mut ops = vec![make_topic(&topic, nonce)];
        let waits_until = match by {
            DueBy::Wall => due,
            DueBy::Elapsed => {
                if !std::mem::replace(&mut self.elapsed_written, true) {
                    ops.push(self.elapsed.put(self.now));
                }
                // The process that moves the event may have a clock ahead of this one's, and must not be early.
                self.elapsed.at(self.now) + due.0.saturating_sub(self.now.wall.0) + TICK_MS + ELAPSED_APART_MS
            }
        };
        let body = event.body(lineage);
        let row = DueRow::of(&stream, id.clone(), &body, Durability::Fsync, DEDUPE_WINDOW_MS);
        ops.push(Op::Delay(Delay {
            topic,
            id,
            dedupe_window_ms: if may_repeat { DEDUPE_WINDOW_MS } else { 0 },
            due,
            key: by.key(waits_until, nonce, ordinal),
            row: Box::new(row),
        }));
        Ok(ops)
    }

    /// Returns which clock the event waits for, and its due time on the wall clock if that is not set meanwhile.
    /// `None`: due now.
    fn due(&self, event: &OutEvent) -> Result<Option<(DueBy, Timestamp)>, CommitError> {
        let now = self.now.wall;
        let (by, delay_ms, due) = match event.deliver_at {
            None | Some(DeliverAt::AfterMs(0)) => return Ok(None),
            Some(DeliverAt::AfterMs(ms)) => (DueBy::Elapsed, ms, now + ms.saturating_add(TICK_MS)),
            Some(DeliverAt::At(at)) => (DueBy::Wall, at.0.saturating_sub(now.0), at),
        };
        if delay_ms > DELAY_MS_MAX {
            return Err(CommitError::DelayTooLong { delay_ms, limit: DELAY_MS_MAX });
        }
        Ok((due > now).then_some((by, due)))
    }
}

/// Returns the operations that append the event at once; they also create its topic if it does not exist.
pub(crate) fn append(
    namespace: &Namespace,
    topics: &Topics,
    event: &OutEvent,
    id: EventId,
    lineage: Lineage,
    nonce: u64,
) -> [Op; 2] {
    let topic = TopicKey::new(namespace, &event.topic);
    let new = NewEvent { id: Some(id), body: Arc::new(event.body(lineage)) };
    let stream = topic.stream(topics.partition_of(event));
    let append = Append { stream, event: new, dedupe_window_ms: DEDUPE_WINDOW_MS };
    [make_topic(&topic, nonce), Op::Append(append)]
}

fn make_topic(topic: &TopicKey, nonce: u64) -> Op {
    let config = TopicConfig { partitions: 1, ..TopicConfig::default() };
    let row = TopicRow { config, incarnation: nonce, ..TopicRow::default() };
    Op::PutNew { space: Space::Topics, key: keys::topic(topic), value: row.encode() }
}
