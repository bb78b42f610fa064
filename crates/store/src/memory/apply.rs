//! One commit: batch by batch, each checked against what those before it left.

use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{
    Append, Appended, Batch, Check, Event, EventId, Op, Outcome, Refusal, Space, Timestamp, TopicKey,
};

use super::State;
use super::feed;
use super::log::Log;
use crate::port::Run;

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
        let row = |space: Space, key: &String| self.spaces.get(&(space, key.clone()));
        batch.checks.iter().enumerate().find_map(|(at, check)| {
            let (found, holds) = match check {
                Check::Absent { space, key } => (row(*space, key), row(*space, key).is_none()),
                Check::Present { space, key } => (row(*space, key), row(*space, key).is_some()),
                Check::Equals { space, key, value } => (row(*space, key), row(*space, key) == Some(value)),
            };
            (!holds).then(|| Refusal { check: at, found: found.cloned() })
        })
    }

    fn apply(&mut self, batch: &Batch, runs: &mut Vec<Run>) -> Vec<Appended> {
        let mut appended: Vec<Appended> = Vec::new();
        for op in &batch.ops {
            match op {
                Op::Append(append) => {
                    let ordinal = appended.len() as u32;
                    appended.push(self.append(batch, append, ordinal, runs));
                }
                Op::Put { space, key, value } => self.put(*space, key, value),
                Op::Delete { space, key } => {
                    self.spaces.remove(&(*space, key.clone()));
                }
                Op::Trim { stream, start } => {
                    if let Some(log) = self.logs.get_mut(stream) {
                        log.trim(*start);
                    }
                }
                Op::Remove { stream, offsets, compacted_to } => {
                    if let Some(log) = self.logs.get_mut(stream) {
                        log.remove(offsets, *compacted_to);
                    }
                }
                Op::Drop { topic } => self.drop_topic(topic, runs),
            }
        }
        appended
    }

    fn put(&mut self, space: Space, key: &str, value: &Bytes) {
        self.spaces.insert((space, key.to_owned()), value.clone());
    }

    fn append(&mut self, batch: &Batch, append: &Append, ordinal: u32, runs: &mut Vec<Run>) -> Appended {
        if let Some(first) = self.duplicate_of(batch.now, append) {
            return first;
        }
        let log = self.logs.entry(append.stream.clone()).or_insert_with(Log::new);
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
            self.ids.remember(&append.stream.topic, &id, append.stream.partition, offset);
        }
        feed::extend(runs, append, offset);
        Appended { partition: append.stream.partition, offset, ts, id, duplicate: false }
    }

    /// Only an event that is still retained makes another one a duplicate: a trimmed event is forgotten, id and all.
    fn duplicate_of(&self, now: Timestamp, append: &Append) -> Option<Appended> {
        let id = append.event.id.as_ref().filter(|_| append.dedupe_window_ms > 0)?;
        let (partition, offset) = self.ids.find(&append.stream.topic, id)?;
        let first = self.logs.get(&append.stream.topic.stream(partition))?.get(offset)?;
        let in_window = first.ts >= now.saturating_sub(append.dedupe_window_ms);
        in_window.then(|| Appended { partition, offset, ts: first.ts, id: first.id.clone(), duplicate: true })
    }

    fn drop_topic(&mut self, topic: &TopicKey, runs: &mut Vec<Run>) {
        self.logs.retain(|stream, _| stream.topic != *topic);
        self.ids.forget_topic(topic);
        self.feed.forget_topic(topic);
        runs.retain(|run| run.stream.topic != *topic);
    }
}

fn changes_streams(op: &Op) -> bool {
    matches!(op, Op::Append(_) | Op::Trim { .. } | Op::Remove { .. } | Op::Drop { .. })
}
