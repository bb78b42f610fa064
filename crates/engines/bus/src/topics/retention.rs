//! Retention: at intervals the engine determines, for every topic that has a limit, where its logs should start.
//!
//! Removed events are gone for good, and the wall clock may be wrong. So an event is removed because of its age only in
//! two cases: its timestamp is old enough, by a wall clock that has been steady for long and by the time that ages are
//! counted from ([`AgeGuard`]); or this server itself has seen the event lie in the log for that long by the monotonic
//! clock ([`LogAges`]), whatever its timestamp says.
//!
//! [`AgeGuard`]: millrace_model::AgeGuard

use std::collections::{BTreeMap, VecDeque};

use millrace_model::{Mono, Now, Offset, Op, Partition, never};

use crate::bus::Bus;
use crate::interface::effect::Effect;
use crate::interface::note::Note;
use crate::lifecycle::pending::PendingEffect;
use crate::topics::topic::TopicId;

/// Topics looked at in one go; the rest follow shortly after, so that retention never holds up the loop.
const TOPICS_PER_LOOK_MAX: usize = 64;
const NEXT_LOOK_MS: u64 = 20;

/// How finely the age of events is known by the monotonic clock: an event is removed late by at most this fraction
/// (1/8) of its retention.
const MARKS_PER_AGE: u64 = 8;

/// How long the events of a log have lain there by the monotonic clock: moments, and where the log ended at each of
/// them.
#[derive(Debug, Default)]
pub(crate) struct LogAges {
    /// Ascending; at most [`MARKS_PER_AGE`] + 2 entries.
    marks: VecDeque<(Mono, Offset)>,
}

impl LogAges {
    /// Notes where the log ends now, if the last mark is old enough for another one.
    pub(crate) fn note(&mut self, now: Mono, next: Offset, age_ms: u64) {
        let pause_ms = age_ms / MARKS_PER_AGE;
        if self.marks.back().is_none_or(|(last, _)| now.0.saturating_sub(last.0) > pause_ms) {
            self.forget(now, age_ms);
            self.marks.push_back((now, next));
        }
    }

    /// Drops marks: of those that are older than `age_ms`, only the newest is needed.
    fn forget(&mut self, now: Mono, age_ms: u64) {
        while self.marks.get(1).is_some_and(|mark| is_old(now, mark, age_ms)) {
            self.marks.pop_front();
        }
        while self.marks.len() as u64 > MARKS_PER_AGE + 1 {
            self.marks.pop_front();
        }
    }

    /// Returns where the log should start without the events that have lain there for `age_ms`.
    fn start(&mut self, now: Mono, age_ms: u64) -> Offset {
        self.forget(now, age_ms);
        let old = self.marks.front().filter(|mark| is_old(now, mark, age_ms));
        old.map_or(Offset::ZERO, |(_, next)| *next)
    }
}

fn is_old(now: Mono, (at, _): &(Mono, Offset), age_ms: u64) -> bool {
    now.0.saturating_sub(at.0) >= age_ms
}

#[derive(Debug, Default)]
pub(crate) struct RetentionState {
    wake: Option<Mono>,
    /// The last topic that was looked at in the round under way.
    after: Option<TopicId>,
    /// Events that were removed since the last round began, of topics of users.
    removed: BTreeMap<TopicId, u64>,
}

impl RetentionState {
    pub(crate) fn wake(&self) -> Option<Mono> {
        self.wake
    }
}

impl Bus {
    /// Called when a topic with a limit appears.
    pub(crate) fn expect_retention(&mut self, now: Now) {
        let at = now.mono + self.limits.retention_interval_ms;
        self.retention.wake = Some(self.retention.wake.map_or(at, |wake| wake.min(at)));
    }

    pub(crate) fn wake_retention(&mut self, now: Now) {
        if self.retention.wake.is_none_or(|wake| wake > now.mono) || self.lifecycle.is_stopping() {
            return;
        }
        self.retention.wake = None;
        self.note_removed();
        let from = self.retention.after.map_or(TopicId(0), |TopicId(last)| TopicId(last + 1));
        let limited = |topic: &crate::topics::topic::Topic| {
            topic.config.retention_ms.is_some() || topic.config.retention_bytes.is_some()
        };
        let round: Vec<TopicId> = self
            .topics
            .from(from)
            .filter(|(_, topic)| limited(topic))
            .map(|(id, _)| id)
            .take(TOPICS_PER_LOOK_MAX)
            .collect();
        self.retention.after = None;
        if round.len() == TOPICS_PER_LOOK_MAX {
            self.retention.after = round.last().copied();
            self.retention.wake = Some(now.mono + NEXT_LOOK_MS);
        } else if self.topics.values().any(limited) {
            self.retention.wake = Some(now.mono + self.limits.retention_interval_ms);
        }
        for id in round {
            self.apply_retention(now, id);
        }
    }

    fn apply_retention(&mut self, now: Now, id: TopicId) {
        let Some(topic) = self.topics.must_mut(id, &self.broken) else { return };
        let age_ms = topic.config.retention_ms;
        let believed_ms = age_ms.filter(|ms| self.ages.believes(now, *ms));
        let older_than = believed_ms.map(|ms| self.ages.latest(now).saturating_sub(ms));
        let bytes_max = topic.config.retention_bytes;
        let mut found = Vec::new();
        for (log, partition) in topic.logs.iter_mut().zip(0u32..).filter(|(log, _)| log.start < log.next) {
            let start = age_ms.map_or(Offset::ZERO, |ms| {
                log.ages.note(now.mono, log.next, ms);
                log.ages.start(now.mono, ms)
            });
            found.push((topic.key.stream(Partition(partition)), start));
        }
        for (stream, start) in found {
            self.start_found(now, id, stream.partition.0, start);
            if older_than.is_some() || bytes_max.is_some() {
                let pending = PendingEffect::FindStart { topic: id, partition: stream.partition.0 };
                let token = self.pending.begin(pending);
                self.effects.push(Effect::FindStart { token, stream, older_than, bytes_max });
            }
        }
    }

    pub(crate) fn start_found(&mut self, now: Now, topic: TopicId, partition: u32, start: Offset) {
        // The topic may have been deleted while its log was searched.
        let Some(state) = self.topics.get(topic) else { return };
        let Some(log) = state.logs.get(partition as usize) else {
            never!(self.broken, "{topic:?} has no partition {partition}");
            return;
        };
        if start <= log.start || self.lifecycle.is_stopping() {
            return;
        }
        let ops = vec![Op::Trim { stream: state.key.stream(Partition(partition)), start }];
        let durability = state.durability(&self.limits);
        self.commit(now, durability, ops, PendingEffect::Trim { topic, partition, start });
    }

    /// Emits notes about removed events, once per round, so that a topic with many partitions is noted once.
    pub(crate) fn note_removed(&mut self) {
        for (id, events) in std::mem::take(&mut self.retention.removed) {
            if let Some(topic) = self.topics.get(id).map(|topic| topic.key.clone()) {
                self.note(Note::Removed { topic, events });
            }
        }
    }

    pub(crate) fn trimmed(&mut self, topic: TopicId, partition: u32, start: Offset) {
        // The topic may have been deleted while its log was trimmed.
        let Some((state, tails)) = self.topics.with_tails(topic) else { return };
        if let Some(log) = state.logs.get_mut(partition as usize) {
            let events = start.0.saturating_sub(log.start.0);
            if start > log.next {
                // Another process appended events, and the store had them trimmed, before this engine heard of them.
                log.drop_tail(tails);
                log.next = start;
            }
            log.start = log.start.max(start);
            if events > 0 && !state.system {
                *self.retention.removed.entry(topic).or_default() += events;
            }
        }
        self.agenda.deliver_all(state.groups.values().copied());
    }
}
