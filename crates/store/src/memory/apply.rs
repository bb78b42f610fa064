//! One commit: batch by batch, each checked against what those before it left.

use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{
    Append, Appended, Batch, Check, Delay, Done, Event, EventId, Offset, Op, Outcome, Refusal, Space, Stream,
    Timestamp, TopicKey, keys, lane_of,
};

use super::State;
use super::feed;
use super::log::Log;
use super::look::Looking;
use crate::port::{KeyRange, Run};
use crate::resolve;

impl State {
    pub(super) fn commit(&mut self, batches: &[Batch]) -> Vec<Outcome> {
        let mut runs = Vec::new();
        let mut streams_changed = false;
        let outcomes = batches
            .iter()
            .map(|batch| match self.refusal(batch) {
                Some(refusal) => Outcome::Refused(refusal),
                None => {
                    streams_changed |= batch.ops.iter().any(changes_streams);
                    Outcome::Done(self.apply(batch, &mut runs))
                }
            })
            .collect();
        if streams_changed {
            self.feed.push(runs);
        }
        outcomes
    }

    fn refusal(&self, batch: &Batch) -> Option<Refusal> {
        batch.checks.iter().enumerate().find_map(|(at, check)| {
            let (Check::Absent { space, key }
            | Check::Present { space, key }
            | Check::Equals { space, key, .. }) = check;
            let found = self.tables.get(*space, key);
            let holds = match check {
                Check::Absent { .. } => found.is_none(),
                Check::Present { .. } => found.is_some(),
                Check::Equals { value, .. } => found == Some(value),
            };
            (!holds).then(|| Refusal { check: at, found: found.cloned() })
        })
    }

    fn apply(&mut self, batch: &Batch, runs: &mut Vec<Run>) -> Done {
        let mut done = Done::default();
        for op in &batch.ops {
            match op {
                Op::Append(append) => {
                    let ordinal = done.appended.len() as u32;
                    done.appended.push(self.append(batch, append, ordinal, runs));
                }
                Op::Delay(delay) => done.appended.push(self.delay(batch.now, delay)),
                Op::Put { .. } | Op::PutNew { .. } | Op::Delete { .. } => self.write(op),
                Op::Claim(claim) => {
                    let Ok(taken) = resolve::claim(&mut Looking { state: self, runs }, batch.now, claim);
                    taken.ops.iter().for_each(|op| self.write(op));
                    done.claimed.extend(taken.claimed);
                    done.more |= taken.more;
                }
                Op::Reconcile(reconcile) => {
                    let look = &mut Looking { state: self, runs };
                    let Ok(reconciled) = resolve::reconcile(look, batch.now, reconcile);
                    reconciled.ops.iter().for_each(|op| self.write(op));
                    done.state = reconciled.commit.or(done.state);
                }
                Op::Trim { stream, start } => self.trim(stream, *start),
                Op::Remove { stream, offsets, compacted_to } => {
                    self.remove(stream, offsets, *compacted_to);
                }
                Op::Drop { topic } => self.drop_topic(topic, runs),
            }
        }
        done
    }

    /// An operation on a small table.
    fn write(&mut self, op: &Op) {
        match op {
            Op::Put { space, key, value } => self.tables.put(*space, key, value.clone()),
            Op::PutNew { space, key, value } => self.tables.put_new(*space, key, value),
            Op::Delete { space, key } => self.tables.remove(*space, key),
            _ => {}
        }
    }

    fn append(&mut self, batch: &Batch, append: &Append, ordinal: u32, runs: &mut Vec<Run>) -> Appended {
        if let Some(id) = &append.event.id
            && let Some(first) =
                self.taken(batch.now, &append.stream.topic, append.made, id, append.dedupe_window_ms)
        {
            return first;
        }
        let made = &mut self.made;
        let log = self.logs.entry(append.stream.clone()).or_insert_with(|| {
            *made += 1;
            Log::new(*made)
        });
        let ts = batch.now.max(log.last_ts());
        let id = append.event.id.clone().unwrap_or_else(|| EventId::mint(ts, batch.nonce, ordinal));
        let offset = log.next();
        log.push(Arc::new(Event {
            stream: append.stream.clone(),
            offset,
            ts,
            id: id.clone(),
            body: Arc::clone(&append.event.body),
        }));
        if append.event.id.is_some() {
            self.ids.remember(&append.stream.topic, &id, (append.stream.partition, offset, ts));
        }
        if let Some(lane) = lane_of(append.event.body.priority) {
            let key = keys::off_priority(&append.stream, log.made(), lane, offset);
            self.tables.put(Space::OffPriority, &key, Bytes::from(ts.0.to_string()));
        }
        feed::extend(runs, append, offset);
        Appended { partition: append.stream.partition, offset, ts, id, duplicate: false, due: None }
    }

    fn delay(&mut self, now: Timestamp, delay: &Delay) -> Appended {
        let Delay { topic, made, id, dedupe_window_ms, due, .. } = delay;
        if let Some(first) = self.taken(now, topic, Some(*made), id, *dedupe_window_ms) {
            return first;
        }
        resolve::delay(delay).iter().for_each(|op| self.write(op));
        resolve::waiting(id, now, *due, false)
    }

    /// The answer of the event that has this id already: a stored one, or one that waits.
    fn taken(
        &self,
        now: Timestamp,
        topic: &TopicKey,
        made: Option<u64>,
        id: &EventId,
        window_ms: u64,
    ) -> Option<Appended> {
        if window_ms == 0 {
            return None;
        }
        self.duplicate_of(now, topic, id, window_ms).or_else(|| {
            let row = self.tables.get(Space::DueIds, &keys::due_id(topic, made?, id))?;
            let (due, key) = resolve::holder(row)?;
            let waits = key.is_none_or(|key| self.tables.get(Space::Due, key).is_some());
            waits.then(|| resolve::waiting(id, now, due, true))
        })
    }

    /// An id stays taken for the whole window, although its event was trimmed or removed.
    fn duplicate_of(
        &self,
        now: Timestamp,
        topic: &TopicKey,
        id: &EventId,
        window_ms: u64,
    ) -> Option<Appended> {
        let (partition, offset, ts) = self.ids.find(topic, id)?;
        let (in_window, id) = (ts >= now.saturating_sub(window_ms), id.clone());
        in_window.then_some(Appended { partition, offset, ts, id, duplicate: true, due: None })
    }

    fn trim(&mut self, stream: &Stream, start: Offset) {
        let Some(log) = self.logs.get_mut(stream) else { return };
        let trimmed = log.trim(start);
        self.forget_lanes(stream, &trimmed);
        let Some(log) = self.logs.get(stream) else { return };
        let prefix = KeyRange::prefix(&format!("{stream}/"));
        let end = format!("{stream}/{:016x}", log.bounds(stream).start.0);
        self.tables.remove_range(Space::Finished, &KeyRange { from: prefix.from, to: Some(end) });
    }

    fn remove(&mut self, stream: &Stream, offsets: &[Offset], compacted_to: Offset) {
        let Some(log) = self.logs.get_mut(stream) else { return };
        let removed = log.remove(offsets, compacted_to);
        self.forget_lanes(stream, &removed);
        for event in removed {
            let prefix = format!("{stream}/{:016x}/", event.offset.0);
            self.tables.remove_range(Space::Finished, &KeyRange::prefix(&prefix));
        }
    }

    fn forget_lanes(&mut self, stream: &Stream, events: &[Arc<Event>]) {
        let Some(made) = self.logs.get(stream).map(Log::made) else { return };
        for event in events {
            if let Some(lane) = lane_of(event.body.priority) {
                let key = keys::off_priority(stream, made, lane, event.offset);
                self.tables.remove(Space::OffPriority, &key);
            }
        }
    }

    fn drop_topic(&mut self, topic: &TopicKey, runs: &mut Vec<Run>) {
        let Ok(ops) = resolve::forget_topic(&mut Looking { state: self, runs }, topic);
        ops.iter().for_each(|op| self.write(op));
        self.tables.remove_range(Space::Finished, &KeyRange::prefix(&format!("{topic}/")));
        self.tables.remove_range(Space::OffPriority, &KeyRange::prefix(&format!("{topic}/")));
        self.logs.retain(|stream, _| stream.topic != *topic);
        self.ids.forget_topic(topic);
        self.feed.forget_topic(topic);
        runs.retain(|run| run.stream.topic != *topic);
    }
}

fn changes_streams(op: &Op) -> bool {
    matches!(op, Op::Append(_) | Op::Trim { .. } | Op::Remove { .. } | Op::Drop { .. })
}
