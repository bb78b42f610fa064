//! Compaction: of events with one key only the newest stays, and a tombstone goes after a while.
//!
//! Streams are compacted one at a time, in passes. A pass first reads the events that are new since the last pass and
//! notes the newest offset of each key; then it reads everything up to there and removes the older events. At any time
//! a pass has one read of a page or one small commit under way, and while somebody publishes it rests after each
//! commit, so publishers hardly wait for it. An event is removed only when a newer one with its key was read back from
//! the store, so a pass may be abandoned at any moment.

use std::collections::{BTreeMap, VecDeque};

use millrace_model::{Durability, Event, Mono, Now, Offset, Op, Partition, Stream, Timestamp, never};

use crate::bus::Bus;
use crate::interface::effect::Effect;
use crate::interface::input::{ReadOutcome, ReadPage, Token};
use crate::lifecycle::pending::PendingEffect;
use crate::topics::topic::{Log, TopicId};

/// Events looked at in one step.
const PAGE_EVENTS_MAX: usize = 256;
/// Events removed by one commit, for which a publisher's commit may have to wait: about a millisecond of work for a
/// store.
const REMOVED_MAX: usize = 32;
/// While somebody publishes, a rest is this many times as long as the commit before it, and at least a moment.
const BUSY_REST: u64 = 4;
const BUSY_REST_MS_MIN: u64 = 4;
/// Keys a pass remembers. Where there are more, it ends early and the next one takes over.
const KEYS_MAX: usize = 100_000;
const KEYS_BYTES_MAX: usize = 16 << 20;
/// Pause between two passes when there is more to do.
const NEXT_LOOK_MS: u64 = 20;

#[derive(Debug, Default)]
pub(crate) struct CompactionState {
    wake: Option<Mono>,
    /// The last stream that had its turn.
    after: Option<(TopicId, u32)>,
    pass: Option<CompactionPass>,
}

impl CompactionState {
    /// The read or commit that the pass waits for; `None` while it rests.
    pub(crate) fn token(&self) -> Option<Token> {
        self.pass.as_ref().filter(|pass| !pass.resting).map(|pass| pass.token)
    }

    pub(crate) fn wake(&self) -> Option<Mono> {
        self.wake
    }
}

/// State of compaction for a log; forgotten at a restart, after which the first pass looks at everything.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Compacted {
    /// Below this offset, every key occurs once.
    to: u64,
    /// How many events the last pass kept.
    kept: u64,
    /// The time of the oldest tombstone that the last pass kept.
    tombstone: Option<Timestamp>,
}

#[derive(Debug)]
struct CompactionPass {
    topic: TopicId,
    partition: u32,
    /// The read or commit under way.
    token: Token,
    /// The next offset to look at.
    at: u64,
    /// Offsets from here on are left to the next pass.
    end: u64,
    newest: BTreeMap<Box<str>, u64>,
    newest_bytes: usize,
    sweeping: bool,
    /// Offsets of the last page that are still to be removed.
    gone: VecDeque<Offset>,
    /// When the last commit was requested, and how many events had been published by then.
    asked_at: Mono,
    published: u64,
    resting: bool,
    first_kept: Option<u64>,
    kept: u64,
    tombstone: Option<Timestamp>,
}

impl Compacted {
    /// Whether a pass is worth its reads: at least half as many events are new as the last pass kept, or a tombstone
    /// may be removed.
    fn is_due(&self, log: &Log, spent_before: Option<Timestamp>) -> bool {
        let new = log.next.0.saturating_sub(self.to.max(log.start.0));
        let spent = spent_before.is_some_and(|before| self.tombstone.is_some_and(|ts| ts <= before));
        new > 0 && new >= self.kept / 2 || spent
    }
}

impl Bus {
    /// Called when a topic that is to be compacted appears.
    pub(crate) fn expect_compaction(&mut self, now: Now) {
        let at = now.mono + self.limits.compact_interval_ms;
        self.compaction.wake = Some(self.compaction.wake.map_or(at, |wake| wake.min(at)));
    }

    pub(crate) fn wake_compaction(&mut self, now: Now) {
        let asleep = self.compaction.wake.is_none_or(|wake| wake > now.mono);
        if asleep || self.lifecycle.is_stopping() {
            return;
        }
        self.compaction.wake = None;
        if let Some(pass) = &mut self.compaction.pass {
            // A pass that is not resting goes on when its read or commit ends.
            return if std::mem::take(&mut pass.resting) {
                self.next_step(now);
            };
        }
        let Some((topic, partition)) = self.next_to_compact(now) else {
            self.compaction.after = None;
            if self.topics.values().any(|topic| topic.config.compact) {
                self.expect_compaction(now);
            }
            return;
        };
        self.compaction.after = Some((topic, partition));
        let Some(log) = self.topics.get(topic).and_then(|topic| topic.logs.get(partition as usize)) else {
            never!(self.broken, "{topic:?} has no partition {partition}");
            return;
        };
        self.compaction.pass = Some(CompactionPass {
            topic,
            partition,
            token: Token(0),
            at: log.compacted.to.max(log.start.0),
            end: log.next.0,
            newest: BTreeMap::new(),
            newest_bytes: 0,
            sweeping: false,
            gone: VecDeque::new(),
            asked_at: now.mono,
            published: 0,
            resting: false,
            first_kept: None,
            kept: 0,
            tombstone: None,
        });
        self.next_step(now);
    }

    /// Returns the next stream that is worth a pass, after the last one that had its turn; `None` when the round is
    /// over.
    fn next_to_compact(&self, now: Now) -> Option<(TopicId, u32)> {
        let spent_before = self.spent_before(now);
        let from = self.compaction.after.map_or(TopicId(0), |(topic, _)| topic);
        let streams =
            self.topics.from(from).filter(|(_, topic)| topic.config.compact).flat_map(|(id, topic)| {
                topic.logs.iter().zip(0u32..).map(move |(log, partition)| ((id, partition), log))
            });
        let mut due = streams.filter(|(at, log)| {
            self.compaction.after.is_none_or(|after| *at > after) && log.compacted.is_due(log, spent_before)
        });
        due.next().map(|(at, _)| at)
    }

    /// Returns the time up to which tombstones may be removed; `None` while the wall clock cannot be trusted.
    fn spent_before(&self, now: Now) -> Option<Timestamp> {
        let age_ms = self.limits.tombstone_ms;
        self.ages.believes(now, age_ms).then(|| self.ages.latest(now).saturating_sub(age_ms))
    }

    /// Takes the pass's next step: removes the offsets in `gone`, reads the next page, or ends the pass.
    fn next_step(&mut self, now: Now) {
        let Some(mut pass) = self.compaction.pass.take() else {
            never!(self.broken, "no pass of compaction is under way");
            return;
        };
        let stopping = self.lifecycle.is_stopping();
        let Some(topic) = self.topics.get(pass.topic).filter(|topic| topic.config.compact && !stopping)
        else {
            return self.give_up(now);
        };
        let Some(log) = topic.logs.get(pass.partition as usize) else {
            never!(self.broken, "{:?} has no partition {}", pass.topic, pass.partition);
            return self.give_up(now);
        };
        let stream = topic.key.stream(Partition(pass.partition));
        if !pass.gone.is_empty() {
            let durability = topic.durability(&self.limits);
            return self.remove_some(now, pass, stream, durability);
        }
        if pass.at >= pass.end && !pass.sweeping {
            pass.sweeping = true;
            pass.at = log.start.0;
        }
        if pass.at >= pass.end {
            return self.finish(now, &pass);
        }
        let token = self.pending.begin(PendingEffect::Compact);
        pass.token = token;
        let from = Offset(pass.at);
        self.compaction.pass = Some(pass);
        let (events_max, bytes_max) = (PAGE_EVENTS_MAX, self.limits.fetched_bytes_max);
        self.effects.push(Effect::Read { token, stream, from, events_max, bytes_max });
    }

    /// Abandons the pass. Nothing is lost: the next round starts again.
    fn give_up(&mut self, now: Now) {
        self.compaction.pass = None;
        self.expect_compaction(now);
    }

    pub(crate) fn compaction_read(&mut self, now: Now, token: Token, page: ReadOutcome) {
        let spent_before = self.spent_before(now);
        // The pass may have been abandoned meanwhile.
        let Some(pass) = self.compaction.pass.as_mut().filter(|pass| pass.token == token) else { return };
        // Without a page, or without progress, the stream is gone or the store cannot be read just now.
        let Some(page) = page.filter(|page| page.through.0 >= pass.at) else { return self.give_up(now) };
        if !pass.sweeping {
            pass.collect(&page);
            return self.next_step(now);
        }
        pass.sweep(&page, spent_before);
        self.next_step(now);
    }

    fn remove_some(&mut self, now: Now, mut pass: CompactionPass, stream: Stream, durability: Durability) {
        let count = pass.gone.len().min(REMOVED_MAX);
        let offsets: Vec<Offset> = pass.gone.drain(..count).collect();
        let Some(compacted_to) = offsets.last().map(|last| last.next()) else {
            never!(self.broken, "a pass of compaction removes nothing");
            return self.give_up(now);
        };
        (pass.asked_at, pass.published) = (now.mono, self.counters.published);
        let ops = vec![Op::Remove { stream, offsets, compacted_to }];
        pass.token = self.commit(now, durability, ops, PendingEffect::Compact);
        self.compaction.pass = Some(pass);
    }

    pub(crate) fn compaction_durable(&mut self, now: Now, token: Token) {
        let Some(pass) = self.compaction.pass.as_mut().filter(|pass| pass.token == token) else { return };
        if pass.published == self.counters.published {
            return self.next_step(now);
        }
        pass.resting = true;
        let took = now.mono.0.saturating_sub(pass.asked_at.0);
        self.compaction.wake = Some(now.mono + (took * BUSY_REST).max(BUSY_REST_MS_MIN));
    }

    fn finish(&mut self, now: Now, pass: &CompactionPass) {
        self.compaction.wake = Some(now.mono + NEXT_LOOK_MS);
        let Some(topic) = self.topics.must_mut(pass.topic, &self.broken) else { return };
        let Some(log) = topic.logs.get_mut(pass.partition as usize) else {
            never!(self.broken, "{:?} has no partition {}", pass.topic, pass.partition);
            return;
        };
        log.compacted = Compacted { to: pass.end, kept: pass.kept, tombstone: pass.tombstone };
        // Moves the log's start, so that readers need not walk through its empty beginning.
        let start = Offset(pass.first_kept.unwrap_or(pass.end));
        self.start_found(now, pass.topic, pass.partition, start);
    }
}

impl CompactionPass {
    fn collect(&mut self, page: &ReadPage) {
        let end = self.end;
        for event in page.events.iter().filter(|event| event.offset.0 < end) {
            let Some(key) = &event.body.key else { continue };
            if let Some(offset) = self.newest.get_mut(key) {
                *offset = event.offset.0;
                continue;
            }
            if self.newest.len() >= KEYS_MAX || self.newest_bytes + key.len() > KEYS_BYTES_MAX {
                // The pass ends before this event; the next pass begins with it. A key that is too long even alone is
                // passed over: its events then stay, which is never wrong.
                if self.newest.is_empty() {
                    continue;
                }
                self.end = event.offset.0;
                break;
            }
            self.newest_bytes += key.len();
            self.newest.insert(key.clone(), event.offset.0);
        }
        self.at = page.through.0 + 1;
    }

    /// Collects the offsets of this page that are to be removed.
    fn sweep(&mut self, page: &ReadPage, spent_before: Option<Timestamp>) {
        let end = self.end;
        for event in page.events.iter().filter(|event| event.offset.0 < end) {
            if self.is_superseded(event) || self.is_spent(event, spent_before) {
                self.gone.push_back(event.offset);
            } else {
                self.kept += 1;
                self.first_kept.get_or_insert(event.offset.0);
            }
        }
        self.at = page.through.0 + 1;
    }

    fn is_superseded(&self, event: &Event) -> bool {
        let newest = event.body.key.as_ref().and_then(|key| self.newest.get(key));
        newest.is_some_and(|newest| *newest > event.offset.0)
    }

    /// Whether the event is a tombstone that consumers have had the time to see. The events that it deletes are removed
    /// before it, because the sweep goes upwards.
    fn is_spent(&mut self, event: &Event, spent_before: Option<Timestamp>) -> bool {
        if event.body.key.is_none() || event.body.payload.as_str().trim() != "null" {
            return false;
        }
        let spent = spent_before.is_some_and(|before| event.ts <= before);
        if !spent {
            self.tombstone = Some(self.tombstone.map_or(event.ts, |first| first.min(event.ts)));
        }
        spent
    }
}
