//! Applies a commit batch by batch; each batch is checked against the state that the batches before it left.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{
    Append, Appended, Batch, Check, Delay, Done, Event, EventId, KeyRange, Offset, Op, Outcome, Refusal,
    Space, Stream, TakenId, Timestamp, TopicKey, TopicRow, keys, lane_of,
};

use super::MemoryState;
use super::feed::{self, StreamChanges};
use super::log::StreamLog;
use super::tx_view::MemoryTxView;
use crate::fold::RecordedChange;
use crate::port::{StreamBounds, StreamRun};
use millrace_resolve as resolve;

impl MemoryState {
    pub(super) fn commit(&mut self, batches: &[Batch]) -> Vec<Outcome> {
        let mut runs = Vec::new();
        let (mut streams_changed, mut delayed) = (false, false);
        let outcomes: Vec<Outcome> = batches
            .iter()
            .map(|batch| match self.refusal(batch) {
                Some(refusal) => Outcome::Refused(refusal),
                None => {
                    streams_changed |= batch.ops.iter().any(changes_streams);
                    let done = self.apply(batch, &mut runs);
                    delayed |= done.appended.iter().any(|one| one.due.is_some() && !one.duplicate);
                    Outcome::Done(done)
                }
            })
            .collect();
        if streams_changed || delayed {
            let trimmed = self.trimmed_by(batches, &outcomes);
            self.feed.push(StreamChanges { runs, trimmed, delayed });
        }
        outcomes
    }

    /// Returns the streams that the accepted batches have trimmed.
    fn trimmed_by(&self, batches: &[Batch], outcomes: &[Outcome]) -> Vec<StreamBounds> {
        let done = batches.iter().zip(outcomes).filter(|(_, outcome)| matches!(outcome, Outcome::Done(_)));
        let streams: BTreeSet<&Stream> = done
            .flat_map(|(batch, _)| &batch.ops)
            .filter_map(|op| match op {
                Op::Trim { stream, .. } => Some(stream),
                _ => None,
            })
            .collect();
        streams.into_iter().filter_map(|stream| Some(self.logs.get(stream)?.bounds(stream))).collect()
    }

    fn refusal(&self, batch: &Batch) -> Option<Refusal> {
        batch.checks.iter().enumerate().find_map(|(at, check)| {
            let (found, holds) = match check {
                Check::Absent { space, key } => {
                    let found = self.tables.get(*space, key);
                    (found, found.is_none())
                }
                Check::Present { space, key } => {
                    let found = self.tables.get(*space, key);
                    (found, found.is_some())
                }
                Check::Equals { space, key, value } => {
                    let found = self.tables.get(*space, key);
                    (found, found == Some(value))
                }
                Check::IdTaken(TakenId { topic, id, dedupe_window_ms }) => {
                    (None, self.taken(batch.now, topic, id, *dedupe_window_ms).is_some())
                }
                Check::Incarnation { topic, incarnation } => {
                    let found = self.tables.get(Space::Topics, &keys::topic(topic));
                    (found, found.and_then(|row| TopicRow::incarnation_of(row)) == Some(*incarnation))
                }
            };
            (!holds).then(|| Refusal { check: at, found: found.cloned() })
        })
    }

    fn apply(&mut self, batch: &Batch, runs: &mut Vec<StreamRun>) -> Done {
        let mut done = Done::default();
        for op in &batch.ops {
            match op {
                Op::Append(append) => {
                    let ordinal = done.appended.len() as u32;
                    done.appended.push(self.append(batch, append, ordinal, runs));
                }
                Op::Delay(delay) => done.appended.push(self.delay(batch.now, delay)),
                Op::Put { space: Space::Topics, key, value } => {
                    let standing = self.tables.get(Space::Topics, key);
                    let kept = standing.and_then(|row| resolve::keep_incarnation(key, row, value));
                    done.incarnation_kept |= kept.is_some();
                    let value = kept.unwrap_or_else(|| value.clone());
                    self.write(&Op::Put { space: Space::Topics, key: key.clone(), value });
                }
                Op::Put { .. } | Op::PutNew { .. } | Op::Delete { .. } => self.write(op),
                Op::Claim(claim) => {
                    let Ok(taken) = resolve::claim(&mut MemoryTxView { state: self, runs }, batch.now, claim);
                    taken.ops.iter().for_each(|op| self.write(op));
                    done.claimed.extend(taken.claimed);
                    done.more |= taken.more;
                }
                Op::Reconcile(reconcile) => {
                    let look = &mut MemoryTxView { state: self, runs };
                    let Ok(reconciled) = resolve::reconcile(look, batch.now, reconcile);
                    reconciled.ops.iter().for_each(|op| self.write(op));
                    done.state = reconciled.commit.or(done.state);
                }
                Op::Trim { stream, start } => self.trim(stream, *start),
                Op::Remove { stream, offsets, compacted_to } => {
                    self.remove(stream, offsets, *compacted_to, runs);
                }
                Op::Drop { topic } => self.drop_topic(topic, batch.now, runs),
            }
        }
        done
    }

    /// Applies an operation on a small table. Other operations are ignored.
    fn write(&mut self, op: &Op) {
        let change = match op {
            Op::Put { space, key, value } => {
                self.tables.put(*space, key, value.clone());
                RecordedChange::Put { space: *space, key: key.clone(), value: value.clone() }
            }
            Op::PutNew { space, key, value } if self.tables.get(*space, key).is_none() => {
                self.tables.put(*space, key, value.clone());
                RecordedChange::Put { space: *space, key: key.clone(), value: value.clone() }
            }
            Op::Delete { space, key } if self.tables.get(*space, key).is_some() => {
                self.tables.remove(*space, key);
                RecordedChange::Delete { space: *space, key: key.clone() }
            }
            _ => return,
        };
        if let Some(recording) = &mut self.recording {
            recording.add(change);
        }
    }

    fn append(
        &mut self,
        batch: &Batch,
        append: &Append,
        ordinal: u32,
        runs: &mut Vec<StreamRun>,
    ) -> Appended {
        if let Some(id) = &append.event.id
            && let Some(first) = self.taken(batch.now, &append.stream.topic, id, append.dedupe_window_ms)
        {
            return first;
        }
        let created = &mut self.streams_created;
        let log = self.logs.entry(append.stream.clone()).or_insert_with(|| {
            *created += 1;
            StreamLog::new(*created)
        });
        let ts = batch.now.max(log.last_ts());
        let id = append.event.id.clone().unwrap_or_else(|| EventId::mint(ts, batch.nonce, ordinal));
        let offset = log.next();
        let event = Arc::new(Event {
            stream: append.stream.clone(),
            offset,
            ts,
            id: id.clone(),
            body: Arc::clone(&append.event.body),
        });
        if let Some(recording) = &mut self.recording {
            recording.append(log.incarnation(), &event, append.event.id.is_some());
        }
        log.push(event);
        if append.event.id.is_some() {
            self.ids.remember(&append.stream.topic, &id, (append.stream.partition, offset, ts));
        }
        if let Some(lane) = lane_of(append.event.body.priority) {
            let key = keys::off_priority(&append.stream, log.incarnation(), lane, offset);
            self.tables.put(Space::OffPriority, &key, Bytes::from(ts.0.to_string()));
        }
        feed::extend(runs, &append.stream, offset);
        Appended { partition: append.stream.partition, offset, ts, id, duplicate: false, due: None }
    }

    fn delay(&mut self, now: Timestamp, delay: &Delay) -> Appended {
        let Delay { topic, id, dedupe_window_ms, due, .. } = delay;
        if let Some(first) = self.taken(now, topic, id, *dedupe_window_ms) {
            return first;
        }
        resolve::delay(delay, self.incarnation_of(topic)).iter().for_each(|op| self.write(op));
        resolve::waiting(id, now, *due, false)
    }

    /// Returns the incarnation of the topic that exists now.
    fn incarnation_of(&self, topic: &TopicKey) -> Option<u64> {
        TopicRow::incarnation_of(self.tables.get(Space::Topics, &keys::topic(topic))?)
    }

    /// Returns the answer for the event that has this id already: a stored event, or a delayed one that still waits.
    fn taken(&self, now: Timestamp, topic: &TopicKey, id: &EventId, window_ms: u64) -> Option<Appended> {
        if window_ms == 0 {
            return None;
        }
        self.duplicate_of(now, topic, id, window_ms).or_else(|| {
            let row =
                self.tables.get(Space::DueIds, &keys::due_id(topic, self.incarnation_of(topic)?, id))?;
            let (due, key) = resolve::holder(row)?;
            let waits = key.is_none_or(|key| self.tables.get(Space::Due, key).is_some());
            waits.then(|| resolve::waiting(id, now, due, true))
        })
    }

    /// Returns the answer for a stored event with this id. An id stays taken for the whole window, even if its event
    /// was trimmed or removed.
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

    pub(super) fn trim(&mut self, stream: &Stream, start: Offset) {
        let Some(log) = self.logs.get_mut(stream) else { return };
        let before = log.bounds(stream).start;
        let trimmed = log.trim(start);
        let (number, start) = (log.incarnation(), log.bounds(stream).start);
        // A trim that moves nothing leaves no trace in a record, so it must change nothing.
        if start == before {
            return;
        }
        if let Some(recording) = &mut self.recording {
            recording.start(stream, number, start);
        }
        self.forget_lanes(stream, &trimmed);
        self.forget_finished(stream, start);
    }

    /// Removes the rows that say how trimmed events have ended.
    pub(super) fn forget_finished(&mut self, stream: &Stream, start: Offset) {
        let prefix = KeyRange::prefix(&format!("{stream}/"));
        let end = format!("{stream}/{:016x}", start.0);
        self.tables.remove_range(Space::Finished, &KeyRange { from: prefix.from, to: Some(end) });
    }

    /// Removes events of earlier commits: those of this commit are newer than anything that compaction can have read.
    pub(super) fn remove(
        &mut self,
        stream: &Stream,
        offsets: &[Offset],
        compacted_to: Offset,
        runs: &[StreamRun],
    ) {
        let Some(log) = self.logs.get_mut(stream) else { return };
        let stored = runs.iter().find(|run| run.stream == *stream).map_or(log.next(), |run| run.first);
        let compacted_to = compacted_to.min(stored);
        let removed = log.remove(offsets, compacted_to);
        // A stream that this commit has made has nothing to remove, and is not there yet when the record is applied.
        if let Some(recording) = self.recording.as_mut().filter(|_| !removed.is_empty()) {
            let offsets = removed.iter().map(|event| event.offset).collect();
            let (stream, number) = (stream.clone(), log.incarnation());
            recording.add(RecordedChange::Remove { stream, number, offsets, compacted_to });
        }
        self.forget_lanes(stream, &removed);
        for event in removed {
            let prefix = format!("{stream}/{:016x}/", event.offset.0);
            self.tables.remove_range(Space::Finished, &KeyRange::prefix(&prefix));
        }
    }

    fn forget_lanes(&mut self, stream: &Stream, events: &[Arc<Event>]) {
        let Some(incarnation) = self.logs.get(stream).map(StreamLog::incarnation) else { return };
        for event in events {
            if let Some(lane) = lane_of(event.body.priority) {
                let key = keys::off_priority(stream, incarnation, lane, event.offset);
                self.tables.remove(Space::OffPriority, &key);
            }
        }
    }

    fn drop_topic(&mut self, topic: &TopicKey, now: Timestamp, runs: &mut Vec<StreamRun>) {
        let Ok(ops) = resolve::forget_topic(&mut MemoryTxView { state: self, runs }, topic);
        ops.iter().for_each(|op| self.write(op));
        if let Some(recording) = &mut self.recording {
            recording.forget_topic(topic);
            recording.add(RecordedChange::Drop { topic: topic.clone(), at: now });
        }
        self.forget_dropped(topic);
        runs.retain(|run| run.stream.topic != *topic);
    }

    /// Removes the streams of a topic and everything about their events.
    pub(super) fn forget_dropped(&mut self, topic: &TopicKey) {
        self.tables.remove_range(Space::Finished, &KeyRange::prefix(&format!("{topic}/")));
        self.tables.remove_range(Space::OffPriority, &KeyRange::prefix(&format!("{topic}/")));
        self.logs.retain(|stream, _| stream.topic != *topic);
        self.ids.forget_topic(topic);
        self.feed.forget_topic(topic);
    }
}

fn changes_streams(op: &Op) -> bool {
    matches!(op, Op::Append(_) | Op::Trim { .. } | Op::Remove { .. } | Op::Drop { .. })
}
