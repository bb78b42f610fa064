//! Commits of others to the same store: of sessions in other processes, or in this process beside the server.
//!
//! The shell reports the bounds of streams that changed. Appends of this engine are among them and are no news; events
//! that others appended become visible here exactly as if they had been read back.
//!
//! A report names a topic, but not which incarnation of it (a topic may be deleted and created again under the same
//! name). So a report is applied only while no commit that creates, changes or drops the topic is under way. Otherwise,
//! and for topics that others created, the topic is looked up in the store once that commit has ended; the bounds found
//! there are applied if it is the incarnation that this engine knows.
//!
//! Others delay events, too. The shell reports when the first one is due, as it did at the start.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use millrace_model::{
    DueBy, ElapsedRow, Mono, Now, Offset, Op, Space, Stream, Timestamp, TopicKey, TopicRow, keys, never,
};

use crate::bus::Bus;
use crate::interface::effect::Effect;
use crate::interface::input::Token;
use crate::lifecycle::pending::Pending;

/// The bounds of a stream, as found in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    pub stream: Stream,
    /// The first offset that is retained.
    pub start: Offset,
    /// The offset the next event will get.
    pub next: Offset,
}

/// Report about delayed events, made when somebody has delayed one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelayedElsewhere {
    /// When the first delayed event of each kind is due.
    pub first_due: Vec<(DueBy, Timestamp)>,
    /// The row at [`millrace_model::keys::ELAPSED`], if there is one.
    pub elapsed: Option<Bytes>,
}

/// A topic as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTopic {
    pub row: Bytes,
    pub reaches: Vec<Reach>,
}

#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    /// Topics to look up. Never more than there are topics in the store or on their way into it.
    wanted: BTreeSet<TopicKey>,
    asked: BTreeSet<TopicKey>,
    /// Topics that another process had created before this engine did: their lookup tells their incarnation. A subset
    /// of `wanted`.
    to_adopt: BTreeSet<TopicKey>,
    /// Commits under way that write or drop the row of a topic.
    in_doubt: BTreeMap<Token, Vec<TopicKey>>,
    /// When the next lookup that failed is tried again.
    wake: Option<Mono>,
}

impl Elsewhere {
    pub(crate) fn wake(&self) -> Option<Mono> {
        self.wake
    }

    /// Called with every commit: remembers the commits that create, change or drop a topic.
    pub(crate) fn watch(&mut self, token: Token, ops: &[Op]) {
        let topics: Vec<TopicKey> = ops
            .iter()
            .filter_map(|op| match op {
                Op::Put { space: Space::Topics, key, .. } => TopicKey::parse(key).ok(),
                Op::Drop { topic } => Some(topic.clone()),
                _ => None,
            })
            .collect();
        // A lookup from before the drop says nothing about a later topic of that name.
        for op in ops {
            if let Op::Drop { topic } = op {
                self.to_adopt.remove(topic);
            }
        }
        if !topics.is_empty() {
            self.in_doubt.insert(token, topics);
        }
    }

    /// Checks which topics are being looked up; `is_pending` says whether a commit is under way.
    pub(crate) fn check(&self, looked_up: &BTreeSet<&TopicKey>, is_pending: impl Fn(Token) -> bool) {
        assert!(self.asked.iter().eq(looked_up.iter().copied()), "topics that are being looked up");
        assert!(self.to_adopt.is_subset(&self.wanted), "a topic to be adopted is looked up");
        assert!(self.in_doubt.keys().all(|token| is_pending(*token)), "a doubt ends with its commit");
    }

    fn doubts(&self, topic: &TopicKey) -> bool {
        self.in_doubt.values().flatten().any(|doubted| doubted == topic)
    }
}

impl Bus {
    /// Handles a report of streams that somebody, perhaps this engine itself, has appended to or trimmed.
    pub(crate) fn reported(&mut self, reaches: &[Reach]) {
        for reach in reaches {
            let topic = &reach.stream.topic;
            if self.topics.contains(topic) && !self.elsewhere.doubts(topic) {
                self.extend_log(reach);
            } else if self.elsewhere.wanted.insert(topic.clone()) {
                self.look_up(topic.clone());
            }
        }
    }

    /// Handles a report that somebody has delayed an event: it says when the first delayed event of each kind is due.
    pub(crate) fn delayed_elsewhere(&mut self, now: Now, delayed: &DelayedElsewhere) {
        self.due.note_delayed();
        let elapsed = delayed.elapsed.as_ref();
        if let Some(row) = elapsed.and_then(|row| ElapsedRow::decode(keys::ELAPSED, row).ok()) {
            self.elapsed.meet(row, now);
        }
        for (by, at) in &delayed.first_due {
            self.expect_due(now, *by, *at);
        }
    }

    /// Called when a commit wrote the row of a topic that another process had created before: the topic goes on as that
    /// incarnation, which a lookup has to find out.
    pub(crate) fn look_up_doubted(&mut self, token: Token) {
        let doubted = self.elsewhere.in_doubt.get(&token).cloned().unwrap_or_default();
        self.elsewhere.to_adopt.extend(doubted.iter().cloned());
        self.elsewhere.wanted.extend(doubted);
    }

    /// Called when a commit has ended, successful or not: looks up the topics that had to wait for it.
    pub(crate) fn settle_doubts(&mut self, token: Token) {
        for topic in self.elsewhere.in_doubt.remove(&token).unwrap_or_default() {
            if self.elsewhere.wanted.contains(&topic) {
                self.look_up(topic);
            }
        }
    }

    fn look_up(&mut self, topic: TopicKey) {
        if self.elsewhere.doubts(&topic) || !self.elsewhere.asked.insert(topic.clone()) {
            return;
        }
        let token = self.pending.begin(Pending::ReadTopic { topic: topic.clone() });
        self.effects.push(Effect::ReadTopic { token, topic });
    }

    fn extend_log(&mut self, reach: &Reach) {
        let Some(id) = self.topics.id(&reach.stream.topic) else { return };
        let partition = reach.stream.partition.0;
        let Some((topic, tails)) = self.topics.with_tails(id) else { return };
        // Another process may have given the topic more partitions than this engine knows.
        let Some(log) = topic.logs.get_mut(partition as usize) else { return };
        if reach.next > log.next {
            // This engine has not seen these events: groups at the tail read them from the store.
            log.drop_tail(tails);
            log.next = reach.next;
            self.agenda.deliver_all(topic.groups.values().copied());
        }
        if reach.start > log.start {
            self.trimmed(id, partition, reach.start);
        }
    }

    /// Handles a lookup. `found` is `None` when the topic could not be read just now, `Some(None)` when there is no
    /// such topic.
    pub(crate) fn topic_read(&mut self, now: Now, token: Token, found: Option<Option<StoredTopic>>) {
        let topic = match self.pending.end(token) {
            Some(Pending::ReadTopic { topic }) => topic,
            Some(other) => return never!(self.broken, "a topic is the answer to {other:?}"),
            // Given up when the store failed.
            None => return,
        };
        self.elsewhere.asked.remove(&topic);
        if self.elsewhere.doubts(&topic) {
            // A commit on this topic has begun meanwhile: its end looks the topic up again.
            return;
        }
        let Some(found) = found else {
            self.elsewhere.wake = Some(now.mono + self.limits.read_retry_ms);
            return;
        };
        self.elsewhere.wanted.remove(&topic);
        let adopted = self.elsewhere.to_adopt.remove(&topic);
        // A topic that is gone again is ignored; a row that cannot be decoded is reported at the next start.
        let Some(found) = found else { return };
        let Ok(row) = TopicRow::decode(topic.as_str(), &found.row) else { return };
        let incarnation = row.incarnation;
        let id = match self.topics.id(&topic) {
            Some(id) => id,
            None => {
                let id = self.insert_topic(topic.clone(), row);
                self.note_upkeep(now, id);
                id
            }
        };
        // Not for a topic with versions of a schema: their rows are stored under the incarnation they were written
        // with.
        if let Some(topic) = self.topics.get_mut(id).filter(|topic| adopted && topic.schema_version == 0) {
            topic.incarnation = incarnation;
        }
        if self.topics.get(id).is_some_and(|topic| topic.incarnation == incarnation) {
            for reach in &found.reaches {
                self.extend_log(reach);
            }
        }
    }

    /// Repeats lookups that failed.
    pub(crate) fn wake_elsewhere(&mut self, now: Now) {
        if self.elsewhere.wake.is_none_or(|wake| wake > now.mono) {
            return;
        }
        self.elsewhere.wake = None;
        let wanted: Vec<TopicKey> = self.elsewhere.wanted.iter().cloned().collect();
        for topic in wanted {
            self.look_up(topic);
        }
    }
}
