//! Publishing: one event, many at once, or a delayed one.

use std::sync::Arc;

use millrace_model::{
    Append, Appended, BATCH_BYTES_MAX, Delay, DeliverAt, DueBy, DueRow, Durability, Event, EventId, NewEvent,
    Now, Op, TICK_MS, Timestamp, TopicKey, never,
};

use crate::bus::Bus;
use crate::interface::input::{Publish, PublishBatch};
use crate::interface::reply::{BusError, Reply, ReplyTo};
use crate::lifecycle::pending::{PendingAppend, PendingDelay, PendingEffect};
use crate::topics::schema_change::DuplicateOnly;
use crate::topics::topic::TopicId;

/// Most bytes of events in one batch; the rest of the batch has 64 KiB.
const BATCH_EVENT_BYTES_MAX: usize = BATCH_BYTES_MAX - (64 << 10);

impl Bus {
    pub(crate) fn publish(
        &mut self,
        now: Now,
        to: ReplyTo,
        publish: Publish,
        duplicate_only: Option<DuplicateOnly>,
    ) -> Result<(), BusError> {
        let Publish { topic, event, deliver_at } = publish;
        match deliver_at.map(|at| resolve(at, now, self.limits.delay_ms_max)).transpose()? {
            Some((by, due)) if due > now.wall => {
                self.delay(now, to, &topic, event, (by, due), duplicate_only)
            }
            _ => self.append(now, to, topic, vec![event], true, duplicate_only),
        }
    }

    pub(crate) fn publish_batch(
        &mut self,
        now: Now,
        to: ReplyTo,
        batch: PublishBatch,
        duplicate_only: Option<DuplicateOnly>,
    ) -> Result<(), BusError> {
        let PublishBatch { topic, events } = batch;
        if events.is_empty() {
            return Err(BusError::EmptyBatch);
        }
        if events.len() > self.limits.batch_events_max {
            let (events, max) = (events.len(), self.limits.batch_events_max);
            return Err(BusError::BatchTooLong { events, max });
        }
        self.append(now, to, topic, events, false, duplicate_only)
    }

    fn append(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: TopicKey,
        events: Vec<NewEvent>,
        single: bool,
        duplicate_only: Option<DuplicateOnly>,
    ) -> Result<(), BusError> {
        let mut ops = Vec::with_capacity(events.len() + 1);
        let (durability, appends) = self.push_appends(&topic, events, &mut ops)?;
        let pending = PendingEffect::Publish { to, topic, single, durability, appends };
        self.commit_published(now, durability, duplicate_only, ops, pending);
        Ok(())
    }

    /// Appends events of the server itself, in one commit with the operations that `ops` holds already.
    pub(crate) fn append_after(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: TopicKey,
        events: Vec<NewEvent>,
        mut ops: Vec<Op>,
    ) -> Result<(), BusError> {
        let (durability, appends) = self.push_appends(&topic, events, &mut ops)?;
        let pending = PendingEffect::Publish { to, topic, single: false, durability, appends };
        self.commit(now, durability, ops, pending);
        Ok(())
    }

    /// Adds an append for each event to `ops`. Creates the topic if it does not exist.
    fn push_appends(
        &mut self,
        topic: &TopicKey,
        events: Vec<NewEvent>,
        ops: &mut Vec<Op>,
    ) -> Result<(Durability, Vec<PendingAppend>), BusError> {
        let bytes: usize = events.iter().map(|event| event.body.bytes()).sum();
        if bytes > BATCH_EVENT_BYTES_MAX {
            return Err(BusError::BatchTooLarge { bytes, max: BATCH_EVENT_BYTES_MAX });
        }
        let id = self.topic_or_create(topic, ops)?;
        let mut appends = Vec::with_capacity(events.len());
        for event in events {
            self.push_append(id, event, ops, &mut appends);
        }
        let durability =
            self.topics.get(id).map_or(self.limits.durability, |topic| topic.durability(&self.limits));
        Ok((durability, appends))
    }

    /// Adds one append for a topic that exists, in the partition that the event's key, or the next turn, selects.
    pub(crate) fn push_append(
        &mut self,
        id: TopicId,
        event: NewEvent,
        ops: &mut Vec<Op>,
        appends: &mut Vec<PendingAppend>,
    ) {
        let Some(topic) = self.topics.must_mut(id, &self.broken) else {
            return;
        };
        topic.check_candidate_schema(&event.body);
        let partition = topic.partition_for(&event.body);
        let stream = topic.key.stream(partition);
        let dedupe_window_ms = topic.dedupe_window_ms(&self.limits);
        appends.push(PendingAppend { topic: id, stream: stream.clone(), body: event.body.clone() });
        ops.push(Op::Append(Append { stream, event, dedupe_window_ms }));
    }

    /// Handles committed appends: now the events exist, for their publisher and for every group.
    pub(crate) fn appended(&mut self, now: Now, appends: Vec<PendingAppend>, appended: &[Appended]) {
        for (appending, at) in appends.into_iter().zip(appended) {
            if at.duplicate {
                self.counters.duplicates += 1;
                continue;
            }
            // The topic may have been deleted while the commit was under way.
            let Some((topic, tails)) = self.topics.with_tails(appending.topic) else {
                continue;
            };
            let keep = topic.keeps_tail(tails, &self.limits);
            let Some(log) = topic.logs.get_mut(at.partition.0 as usize) else {
                never!(self.broken, "topic {} has no partition {}", topic.key, at.partition);
                continue;
            };
            // Events that the server writes itself do not count as published.
            let count = if topic.system { &mut self.counters.system } else { &mut self.counters.published };
            *count += 1;
            topic.counters.published += 1;
            if let Some(age_ms) = topic.config.retention_ms {
                log.ages.note(now.mono, at.offset.next(), age_ms);
            }
            let PendingAppend { stream, body, .. } = appending;
            let event = Event { stream, offset: at.offset, ts: at.ts, id: at.id.clone(), body };
            log.append(Arc::new(event), keep, tails);
            self.agenda.deliver_all(topic.groups.values().copied());
        }
    }

    pub(crate) fn published(
        &mut self,
        to: ReplyTo,
        topic: TopicKey,
        single: bool,
        durability: Durability,
        appended: &[Appended],
    ) {
        let reply = match (single, appended.first()) {
            (true, Some(at)) => answer(topic, at, durability),
            _ => {
                // A duplicate of an event that is still delayed has no place yet: its offset is 0, which no event has.
                let offsets = appended.iter().map(|at| (at.partition, at.offset)).collect();
                let duplicates = appended.iter().filter(|at| at.duplicate).count();
                Reply::PublishedBatch { topic, offsets, duplicates, durability }
            }
        };
        self.reply(to, reply);
    }

    /// Delays an event: it waits in a table of its own, so that it never holds up a group, and is appended when it is
    /// due.
    fn delay(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: &TopicKey,
        event: NewEvent,
        (by, due): (DueBy, Timestamp),
        duplicate_only: Option<DuplicateOnly>,
    ) -> Result<(), BusError> {
        let mut ops = Vec::new();
        let id = self.topic_or_create(topic, &mut ops)?;
        let token = self.pending.next_token();
        let nonce = self.pending.nonce(token);
        let Some(state) = self.topics.must_mut(id, &self.broken) else {
            return Ok(());
        };
        state.check_candidate_schema(&event.body);
        let partition = state.partition_for(&event.body);
        let appending =
            PendingAppend { topic: id, stream: topic.stream(partition), body: event.body.clone() };
        let durability = state.durability(&self.limits);
        let dedupe_window_ms = state.dedupe_window_ms(&self.limits);
        let (brought, event_id) = match event.id {
            Some(id) => (true, id),
            None => (false, EventId::mint(now.wall, nonce, 0)),
        };
        let stream = &appending.stream;
        let row = DueRow::of(stream, event_id.clone(), &event.body, durability, dedupe_window_ms);
        self.due.note_delayed();
        let waits_until = match by {
            DueBy::Wall => due,
            DueBy::Elapsed => {
                ops.push(self.elapsed.put(now));
                // The two clocks begin their milliseconds at different moments, and the event's `ts` must not be below
                // `due`.
                self.elapsed.begin_delay(now) + due.0.saturating_sub(now.wall.0) + TICK_MS
            }
        };
        ops.push(Op::Delay(Delay {
            topic: topic.clone(),
            id: event_id,
            // An id that is generated here is unique.
            dedupe_window_ms: if brought { dedupe_window_ms } else { 0 },
            due,
            key: by.key(waits_until, nonce, 0),
            row: Box::new(row),
        }));
        let delayed = PendingDelay { to, topic: topic.clone(), durability, by, waits_until, appending };
        self.commit_published(now, durability, duplicate_only, ops, PendingEffect::Delay(delayed));
        Ok(())
    }

    /// Answers the publisher of a delayed event. A duplicate gets the answer of the first: its due time, or its place
    /// if it has been appended by now.
    pub(crate) fn delayed(&mut self, now: Now, waiting: PendingDelay, appended: &[Appended]) {
        let PendingDelay { to, topic, durability, by, waits_until, .. } = waiting;
        let Some(at) = appended.first() else {
            never!(self.broken, "a delayed event was committed without an outcome");
            return;
        };
        match at.due {
            Some(_) if !at.duplicate => self.expect_due(now, by, waits_until),
            _ => self.counters.duplicates += 1,
        }
        self.reply(to, answer(topic, at, durability));
    }
}

fn answer(topic: TopicKey, at: &Appended, durability: Durability) -> Reply {
    let place = at.due.is_none().then_some((at.partition, at.offset));
    Reply::Published { topic, id: at.id.clone(), at: place, due: at.due, durability }
}

/// Returns the clock that the event waits for, and the wall time at which it is due if that clock does not step.
fn resolve(at: DeliverAt, now: Now, delay_ms_max: u64) -> Result<(DueBy, Timestamp), BusError> {
    let (delay, by, due) = match at {
        DeliverAt::AfterMs(0) => (0, DueBy::Elapsed, now.wall),
        DeliverAt::AfterMs(ms) => (ms, DueBy::Elapsed, now.wall + ms + TICK_MS),
        DeliverAt::At(at) => (at.0.saturating_sub(now.wall.0), DueBy::Wall, at),
    };
    if delay > delay_ms_max {
        return Err(BusError::OutOfRange {
            what: "the delay in milliseconds",
            found: delay,
            max: delay_ms_max,
        });
    }
    Ok((by, due))
}
