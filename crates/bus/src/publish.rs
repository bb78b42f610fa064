//! Publishing: one event, many at once, or one for later.

use std::sync::Arc;

use millrace_model::{
    Append, Appended, BATCH_BYTES_MAX, Delay, DeliverAt, DueRow, Durability, Event, EventId, NewEvent, Now,
    Op, TICK_MS, Timestamp, TopicKey, keys,
};

use crate::bus::Bus;
use crate::input::{Publish, PublishBatch};
use crate::pending::{Appending, Delayed, Pending};
use crate::reply::{BusError, Reply, ReplyTo};
use crate::sabotage::Sabotage;
use crate::topic::TopicId;

/// What the rest of a batch may take beside its events.
const BATCH_EVENT_BYTES_MAX: usize = BATCH_BYTES_MAX - (64 << 10);

impl Bus {
    pub(crate) fn publish(&mut self, now: Now, to: ReplyTo, publish: Publish) -> Result<(), BusError> {
        let Publish { topic, event, deliver_at } = publish;
        match deliver_at.map(|at| resolve(at, now, self.limits.delay_ms_max)).transpose()? {
            Some(due) if due > now.wall => self.delay(now, to, &topic, event, due),
            _ => self.append(now, to, topic, vec![event], true),
        }
    }

    pub(crate) fn publish_batch(
        &mut self,
        now: Now,
        to: ReplyTo,
        batch: PublishBatch,
    ) -> Result<(), BusError> {
        let PublishBatch { topic, events } = batch;
        if events.is_empty() {
            return Err(BusError::EmptyBatch);
        }
        if events.len() > self.limits.batch_events_max {
            let (found, max) = (events.len() as u64, self.limits.batch_events_max as u64);
            return Err(BusError::OutOfRange { what: "the number of events", found, max });
        }
        self.append(now, to, topic, events, false)
    }

    fn append(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: TopicKey,
        events: Vec<NewEvent>,
        single: bool,
    ) -> Result<(), BusError> {
        let ops = Vec::with_capacity(events.len() + 1);
        self.append_after(now, to, topic, events, single, ops)
    }

    /// The same, in one batch with what `ops` holds already.
    pub(crate) fn append_after(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: TopicKey,
        events: Vec<NewEvent>,
        single: bool,
        mut ops: Vec<Op>,
    ) -> Result<(), BusError> {
        let bytes: usize = events.iter().map(|event| event.body.bytes()).sum();
        if bytes > BATCH_EVENT_BYTES_MAX {
            return Err(BusError::BatchTooLarge { bytes, max: BATCH_EVENT_BYTES_MAX });
        }
        let id = self.topic_or_create(&topic, &mut ops)?;
        let mut appends = Vec::with_capacity(events.len());
        for event in events {
            self.push_append(id, event, &mut ops, &mut appends);
        }
        let durability =
            self.topics.get(&id).map_or(self.limits.durability, |topic| topic.durability(&self.limits));
        if self.sabotaged(Sabotage::AnswerBeforeCommit) && single {
            self.answer_too_early(to, &topic, id, durability);
            let pending = Pending::Publish { to: ReplyTo::Nobody, topic, single, durability, appends };
            self.commit(now, durability, ops, pending);
            return Ok(());
        }
        self.commit(now, durability, ops, Pending::Publish { to, topic, single, durability, appends });
        Ok(())
    }

    fn answer_too_early(&mut self, to: ReplyTo, topic: &TopicKey, id: TopicId, durability: Durability) {
        let at =
            self.topics.get(&id).and_then(|topic| topic.bounds().next().map(|log| (log.partition, log.next)));
        let reply = Reply::Published {
            topic: topic.clone(),
            id: EventId::mint(Timestamp(0), 0, 0),
            at,
            due: None,
            durability,
        };
        self.reply(to, reply);
    }

    /// Adds one append for a topic that exists, in the partition its key or its turn gives it.
    pub(crate) fn push_append(
        &mut self,
        id: TopicId,
        event: NewEvent,
        ops: &mut Vec<Op>,
        appends: &mut Vec<Appending>,
    ) {
        let Some(topic) = self.topics.get_mut(&id) else {
            return;
        };
        let partition = topic.partition_for(&event.body);
        let stream = topic.key.stream(partition);
        let dedupe_window_ms = topic.dedupe_window_ms(&self.limits);
        let made = self.due.any.then_some(topic.made);
        appends.push(Appending { topic: id, stream: stream.clone(), body: event.body.clone() });
        ops.push(Op::Append(Append { stream, event, dedupe_window_ms, made }));
    }

    /// The store took them: now they exist, for their publisher and for every group.
    pub(crate) fn appended(&mut self, appends: Vec<Appending>, appended: &[Appended]) {
        let lose = self.sabotaged(Sabotage::LoseTail);
        for (appending, at) in appends.into_iter().zip(appended) {
            if at.duplicate {
                self.counters.duplicates += 1;
                continue;
            }
            let Some(topic) = self.topics.get_mut(&appending.topic) else {
                continue;
            };
            let keep = topic.members > 0 && self.tail_bytes < self.limits.tail_bytes_total_max;
            let Some(log) = topic.logs.get_mut(at.partition.0 as usize) else {
                continue;
            };
            // What the server writes itself is nobody's traffic.
            let count = if topic.system { &mut self.counters.system } else { &mut self.counters.published };
            *count += 1;
            topic.counters.published += 1;
            if lose {
                log.next = log.next.max(at.offset);
                continue;
            }
            let Appending { stream, body, .. } = appending;
            let event = Event { stream, offset: at.offset, ts: at.ts, id: at.id.clone(), body };
            self.tail_bytes -= log.tail_bytes;
            log.append(Arc::new(event), keep);
            self.tail_bytes += log.tail_bytes;
            self.to_pump.extend(topic.groups.values());
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
                // One whose event waits has no place yet: its offset is 0, which no event has.
                let offsets = appended.iter().map(|at| (at.partition, at.offset)).collect();
                let duplicates = appended.iter().filter(|at| at.duplicate).count();
                Reply::PublishedBatch { topic, offsets, duplicates, durability }
            }
        };
        self.reply(to, reply);
    }

    /// The event waits in a table of its own, so that it never holds up a group, and is appended when it is due.
    fn delay(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: &TopicKey,
        event: NewEvent,
        due: Timestamp,
    ) -> Result<(), BusError> {
        let mut ops = Vec::new();
        let id = self.topic_or_create(topic, &mut ops)?;
        let token = self.token();
        let nonce = self.nonce(token);
        let Some(state) = self.topics.get_mut(&id) else {
            return Ok(());
        };
        let partition = state.partition_for(&event.body);
        let made = state.made;
        let durability = state.durability(&self.limits);
        let dedupe_window_ms = state.dedupe_window_ms(&self.limits);
        let (brought, event_id) = match event.id {
            Some(id) => (true, id),
            None => (false, EventId::mint(now.wall, nonce, 0)),
        };
        let row = DueRow {
            topic: topic.as_str().to_owned(),
            made,
            partition: partition.0,
            id: Some(event_id.clone()),
            key: event.body.key.as_deref().map(str::to_owned),
            headers: event.body.headers.as_ref().map(|headers| headers.json().as_str().to_owned()),
            priority: event.body.priority,
            lineage: event.body.lineage.clone(),
            durability,
            dedupe_window_ms,
            payload: event.body.payload.as_str().to_owned(),
        };
        self.due.any = true;
        ops.push(Op::Delay(Delay {
            topic: topic.clone(),
            made,
            id: event_id,
            // An id drawn here is nobody else's.
            dedupe_window_ms: if brought { dedupe_window_ms } else { 0 },
            due,
            key: keys::due(due, nonce, 0),
            row: row.encode(),
        }));
        self.commit(now, durability, ops, Pending::Delay(Delayed { to, topic: topic.clone(), durability }));
        Ok(())
    }

    /// A duplicate is answered like the first: with its time, or with its place if it has one by now.
    pub(crate) fn delayed(&mut self, now: Now, waiting: Delayed, appended: &[Appended]) {
        let Delayed { to, topic, durability } = waiting;
        let Some(at) = appended.first() else { return };
        match at.due {
            Some(due) if !at.duplicate => self.expect_due(now, due),
            _ => self.counters.duplicates += 1,
        }
        self.reply(to, answer(topic, at, durability));
    }
}

fn answer(topic: TopicKey, at: &Appended, durability: Durability) -> Reply {
    let place = at.due.is_none().then_some((at.partition, at.offset));
    Reply::Published { topic, id: at.id.clone(), at: place, due: at.due, durability }
}

/// The time at which it is due.
fn resolve(at: DeliverAt, now: Now, delay_ms_max: u64) -> Result<Timestamp, BusError> {
    let (delay, due) = match at {
        DeliverAt::AfterMs(0) => (0, now.wall),
        DeliverAt::AfterMs(ms) => (ms, now.wall + ms + TICK_MS),
        DeliverAt::At(at) => (at.0.saturating_sub(now.wall.0), at),
    };
    if delay > delay_ms_max {
        return Err(BusError::OutOfRange {
            what: "the delay in milliseconds",
            found: delay,
            max: delay_ms_max,
        });
    }
    Ok(due)
}
