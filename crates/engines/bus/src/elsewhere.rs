//! What others commit to the same store: sessions in other processes, or in this one beside the server.
//!
//! The shell reports how far each stream reaches. What this engine appended itself is among it and no news; what
//! others appended becomes visible here exactly as if it had been read back.
//!
//! A report says nothing about which of several topics of one name it is about. So it is believed only while no
//! commit that makes, changes or drops the topic is under way; otherwise, and for topics that were made elsewhere,
//! the topic is looked up in the store once that is settled, and believed if it is the one this engine knows.
//!
//! Others delay events, too. The shell reports when the first one is due, as it did at the start.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use millrace_model::{
    DueBy, ElapsedRow, Mono, Now, Offset, Op, Space, Stream, Timestamp, TopicKey, TopicRow, keys,
};

use crate::bus::Bus;
use crate::effect::Effect;
use crate::input::Token;
use crate::pending::Pending;

/// How far a stream reaches, as somebody found it in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    pub stream: Stream,
    /// The first offset that is retained.
    pub start: Offset,
    /// The offset the next event will get.
    pub next: Offset,
}

/// What is known of delayed events when somebody has delayed one.
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
    /// Topics that another process had made before this engine did: their lookup says which incarnation they are. A subset of
    /// `wanted`.
    to_adopt: BTreeSet<TopicKey>,
    /// Commits under way that write or drop the row of a topic.
    in_doubt: BTreeMap<Token, Vec<TopicKey>>,
    /// When the next lookup that failed is tried again.
    pub(crate) wake: Option<Mono>,
}

impl Elsewhere {
    /// Called with every commit: remembers those after which a topic is another one.
    pub(crate) fn watch(&mut self, token: Token, ops: &[Op]) {
        let topics: Vec<TopicKey> = ops
            .iter()
            .filter_map(|op| match op {
                Op::Put { space: Space::Topics, key, .. } => TopicKey::parse(key).ok(),
                Op::Drop { topic } => Some(topic.clone()),
                _ => None,
            })
            .collect();
        // What was found before a topic is dropped is not about its successor.
        for op in ops {
            if let Op::Drop { topic } = op {
                self.to_adopt.remove(topic);
            }
        }
        if !topics.is_empty() {
            self.in_doubt.insert(token, topics);
        }
    }

    fn doubts(&self, topic: &TopicKey) -> bool {
        self.in_doubt.values().flatten().any(|doubted| doubted == topic)
    }
}

impl Bus {
    /// Told of streams that somebody, perhaps this engine itself, has appended to or trimmed.
    pub(crate) fn reported(&mut self, reaches: &[Reach]) {
        for reach in reaches {
            let topic = &reach.stream.topic;
            if self.topic_ids.contains_key(topic) && !self.elsewhere.doubts(topic) {
                self.extend_log(reach);
            } else if self.elsewhere.wanted.insert(topic.clone()) {
                self.look_up(topic.clone());
            }
        }
    }

    /// Told when the first delayed event of each kind is due, because somebody has delayed one.
    pub(crate) fn delayed_elsewhere(&mut self, now: Now, delayed: &DelayedElsewhere) {
        self.due.any = true;
        let elapsed = delayed.elapsed.as_ref();
        if let Some(row) = elapsed.and_then(|row| ElapsedRow::decode(keys::ELAPSED, row).ok()) {
            self.elapsed.meet(row, now);
        }
        for (by, at) in &delayed.first_due {
            self.expect_due(now, *by, *at);
        }
    }

    /// A commit has put the row of a topic over that of one which another process had made before: the topic goes on as that
    /// one.
    pub(crate) fn look_up_doubted(&mut self, token: Token) {
        let doubted = self.elsewhere.in_doubt.get(&token).cloned().unwrap_or_default();
        self.elsewhere.to_adopt.extend(doubted.iter().cloned());
        self.elsewhere.wanted.extend(doubted);
    }

    /// A commit is through, one way or the other: what was held back because of it can be looked up.
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
        let token = self.token();
        self.pending.insert(token, Pending::ReadTopic { topic: topic.clone() });
        self.effects.push(Effect::ReadTopic { token, topic });
    }

    fn extend_log(&mut self, reach: &Reach) {
        let Some(id) = self.topic_ids.get(&reach.stream.topic).copied() else { return };
        let partition = reach.stream.partition.0;
        let Some(topic) = self.topics.get_mut(&id) else { return };
        let Some(log) = topic.logs.get_mut(partition as usize) else { return };
        if reach.next > log.next {
            // Events this engine has not seen: whoever is at the tail reads them from the store.
            self.tail_bytes -= log.tail_bytes;
            log.drop_tail();
            log.next = reach.next;
            self.to_pump.extend(topic.groups.values());
        }
        if reach.start > log.start {
            self.trimmed(id, partition, reach.start);
        }
    }

    /// `None` when it could not be read just now; `Some(None)` when there is no such topic.
    pub(crate) fn topic_read(&mut self, now: Now, token: Token, found: Option<Option<StoredTopic>>) {
        let Some(Pending::ReadTopic { topic }) = self.pending.remove(&token) else { return };
        self.elsewhere.asked.remove(&topic);
        if self.elsewhere.doubts(&topic) {
            // Overtaken: the end of that commit looks it up again.
            return;
        }
        let Some(found) = found else {
            self.elsewhere.wake = Some(now.mono + self.limits.read_retry_ms);
            return;
        };
        self.elsewhere.wanted.remove(&topic);
        // A topic that is gone again has nothing to tell; a row that cannot be decoded is named by the next start.
        let Some(found) = found else { return };
        let Ok(row) = TopicRow::decode(topic.as_str(), &found.row) else { return };
        let made = row.made;
        let id = match self.topic_ids.get(&topic).copied() {
            Some(id) => id,
            None => {
                let id = self.insert_topic(topic.clone(), row);
                self.note_upkeep(now, id);
                id
            }
        };
        let adopted = self.elsewhere.to_adopt.remove(&topic);
        // Versions of a schema stand under the number they were written with.
        if let Some(topic) = self.topics.get_mut(&id).filter(|topic| adopted && topic.schema_version == 0) {
            topic.made = made;
        }
        if self.topics.get(&id).is_some_and(|topic| topic.made == made) {
            for reach in &found.reaches {
                self.extend_log(reach);
            }
        }
    }

    /// Asks again for what could not be read.
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
