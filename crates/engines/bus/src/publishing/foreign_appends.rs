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
use crate::lifecycle::pending::PendingEffect;

/// The bounds of a stream, as found in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBounds {
    pub stream: Stream,
    /// The first offset that is retained.
    pub start: Offset,
    /// The offset the next event will get.
    pub next: Offset,
}

/// Report about delayed events, made when somebody has delayed one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignDelays {
    /// When the first delayed event of each kind is due.
    pub first_due: Vec<(DueBy, Timestamp)>,
    /// The row at [`millrace_model::keys::ELAPSED`], if there is one.
    pub elapsed: Option<Bytes>,
}

/// A topic as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTopic {
    pub row: Bytes,
    pub bounds: Vec<LogBounds>,
}

#[derive(Debug, Default)]
pub(crate) struct ForeignCommits {
    /// Topics to look up. Never more than there are topics in the store or on their way into it.
    wanted: BTreeSet<TopicKey>,
    asked: BTreeSet<TopicKey>,
    /// Topics that another process had created before this engine did: their lookup tells their incarnation. A subset
    /// of `wanted`.
    to_adopt: BTreeSet<TopicKey>,
    /// Commits under way that write or drop the row of a topic.
    row_commits: BTreeMap<Token, Vec<TopicKey>>,
    /// When the next lookup that failed is tried again.
    wake: Option<Mono>,
}

impl ForeignCommits {
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
            self.row_commits.insert(token, topics);
        }
    }

    /// Checks which topics are being looked up; `is_pending` says whether a commit is under way.
    pub(crate) fn check(&self, looked_up: &BTreeSet<&TopicKey>, is_pending: impl Fn(Token) -> bool) {
        assert!(self.asked.iter().eq(looked_up.iter().copied()), "topics that are being looked up");
        assert!(self.to_adopt.is_subset(&self.wanted), "a topic to be adopted is looked up");
        assert!(
            self.row_commits.keys().all(|token| is_pending(*token)),
            "commits of topic rows are under way"
        );
    }

    fn has_row_commit(&self, topic: &TopicKey) -> bool {
        self.row_commits.values().flatten().any(|written| written == topic)
    }
}

impl Bus {
    /// Handles a report of streams that somebody, perhaps this engine itself, has appended to or trimmed.
    pub(crate) fn reported(&mut self, reported: &[LogBounds]) {
        for bounds in reported {
            let topic = &bounds.stream.topic;
            if self.topics.contains(topic) && !self.foreign.has_row_commit(topic) {
                self.extend_log(bounds);
            } else if self.foreign.wanted.insert(topic.clone()) {
                self.look_up(topic.clone());
            }
        }
    }

    /// Handles a report that somebody has delayed an event: it says when the first delayed event of each kind is due.
    pub(crate) fn foreign_delays(&mut self, now: Now, delayed: &ForeignDelays) {
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
    pub(crate) fn look_up_incarnations(&mut self, token: Token) {
        let topics = self.foreign.row_commits.get(&token).cloned().unwrap_or_default();
        self.foreign.to_adopt.extend(topics.iter().cloned());
        self.foreign.wanted.extend(topics);
    }

    /// Called when a commit has ended, successful or not: looks up the topics that had to wait for it.
    pub(crate) fn end_row_commit(&mut self, token: Token) {
        for topic in self.foreign.row_commits.remove(&token).unwrap_or_default() {
            if self.foreign.wanted.contains(&topic) {
                self.look_up(topic);
            }
        }
    }

    fn look_up(&mut self, topic: TopicKey) {
        if self.foreign.has_row_commit(&topic) || !self.foreign.asked.insert(topic.clone()) {
            return;
        }
        let token = self.pending.begin(PendingEffect::ReadTopic { topic: topic.clone() });
        self.effects.push(Effect::ReadTopic { token, topic });
    }

    fn extend_log(&mut self, bounds: &LogBounds) {
        let Some(id) = self.topics.id(&bounds.stream.topic) else { return };
        let partition = bounds.stream.partition.0;
        let Some((topic, tails)) = self.topics.with_tails(id) else { return };
        // Another process may have given the topic more partitions than this engine knows.
        let Some(log) = topic.logs.get_mut(partition as usize) else { return };
        if bounds.next > log.next {
            // This engine has not seen these events: groups at the tail read them from the store.
            log.drop_tail(tails);
            log.next = bounds.next;
            self.agenda.deliver_all(topic.groups.values().copied());
        }
        if bounds.start > log.start {
            self.trimmed(id, partition, bounds.start);
        }
    }

    /// Handles a lookup. `found` is `None` when the topic could not be read just now, `Some(None)` when there is no
    /// such topic.
    pub(crate) fn topic_read(&mut self, now: Now, token: Token, found: Option<Option<StoredTopic>>) {
        let topic = match self.pending.complete(token) {
            Some(PendingEffect::ReadTopic { topic }) => topic,
            Some(other) => return never!(self.broken, "a topic is the answer to {other:?}"),
            // Given up when the store failed.
            None => return,
        };
        self.foreign.asked.remove(&topic);
        if self.foreign.has_row_commit(&topic) {
            // A commit on this topic has begun meanwhile: its end looks the topic up again.
            return;
        }
        let Some(found) = found else {
            self.foreign.wake = Some(now.mono + self.limits.read_retry_ms);
            return;
        };
        self.foreign.wanted.remove(&topic);
        let adopted = self.foreign.to_adopt.remove(&topic);
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
            for bounds in &found.bounds {
                self.extend_log(bounds);
            }
        }
    }

    /// Repeats lookups that failed.
    pub(crate) fn wake_lookups(&mut self, now: Now) {
        if self.foreign.wake.is_none_or(|wake| wake > now.mono) {
            return;
        }
        self.foreign.wake = None;
        let wanted: Vec<TopicKey> = self.foreign.wanted.iter().cloned().collect();
        for topic in wanted {
            self.look_up(topic);
        }
    }
}
