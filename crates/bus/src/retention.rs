//! Retention: from time to time every topic that has a limit is asked where it should start.

use millrace_model::{Mono, Now, Offset, Op, Partition};

use crate::bus::Bus;
use crate::effect::Effect;
use crate::pending::Pending;
use crate::topic::TopicId;

/// Topics looked at in one go; the rest follow shortly after, so that a look never holds up the loop.
const TOPICS_PER_LOOK_MAX: usize = 64;
const NEXT_LOOK_MS: u64 = 20;

#[derive(Debug, Default)]
pub(crate) struct RetentionState {
    pub(crate) wake: Option<Mono>,
    /// The last topic of the round under way.
    after: Option<TopicId>,
}

impl Bus {
    /// Called when a topic with a limit appears.
    pub(crate) fn expect_retention(&mut self, now: Now) {
        let at = now.mono + self.limits.retention_interval_ms;
        self.retention.wake = Some(self.retention.wake.map_or(at, |wake| wake.min(at)));
    }

    pub(crate) fn wake_retention(&mut self, now: Now) {
        if self.retention.wake.is_none_or(|wake| wake > now.mono) || self.stopping {
            return;
        }
        self.retention.wake = None;
        let from = self.retention.after.map_or(TopicId(0), |TopicId(last)| TopicId(last + 1));
        let limited = |topic: &crate::topic::Topic| {
            topic.config.retention_ms.is_some() || topic.config.retention_bytes.is_some()
        };
        let round: Vec<TopicId> = self
            .topics
            .range(from..)
            .filter(|(_, topic)| limited(topic))
            .map(|(id, _)| *id)
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
            self.look_at(now, id);
        }
    }

    fn look_at(&mut self, now: Now, id: TopicId) {
        let Some(topic) = self.topics.get(&id) else { return };
        let older_than = topic.config.retention_ms.map(|ms| now.wall.saturating_sub(ms));
        let bytes_max = topic.config.retention_bytes;
        let logs: Vec<_> = topic
            .bounds()
            .filter(|log| log.start < log.next)
            .map(|log| topic.key.stream(log.partition))
            .collect();
        for stream in logs {
            let token = self.token();
            self.pending.insert(token, Pending::FindStart { topic: id, partition: stream.partition.0 });
            self.effects.push(Effect::FindStart { token, stream, older_than, bytes_max });
        }
    }

    pub(crate) fn start_found(&mut self, now: Now, topic: TopicId, partition: u32, start: Offset) {
        let Some(state) = self.topics.get(&topic) else {
            return;
        };
        let Some(log) = state.logs.get(partition as usize) else {
            return;
        };
        if start <= log.start || self.stopping {
            return;
        }
        let ops = vec![Op::Trim { stream: state.key.stream(Partition(partition)), start }];
        let durability = state.durability(&self.limits);
        self.commit(now, durability, ops, Pending::Trim { topic, partition, start });
    }

    pub(crate) fn trimmed(&mut self, topic: TopicId, partition: u32, start: Offset) {
        let Some(state) = self.topics.get_mut(&topic) else {
            return;
        };
        if let Some(log) = state.logs.get_mut(partition as usize) {
            log.start = log.start.max(start);
        }
        self.to_pump.extend(state.groups.values());
    }
}
