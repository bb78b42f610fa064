//! Topics as their owners see them: making, changing, deleting, listing, and where every group stands.

use std::collections::BTreeMap;
use std::ops::Bound;

use millrace_model::{
    Action, Namespace, Now, Offset, Op, Space, TopicConfig, TopicKey, TopicName, TopicPatch, keys,
};

use crate::bus::Bus;
use crate::cursor::Cursor;
use crate::input::By;
use crate::pending::Pending;
use crate::reply::{BusError, GroupView, OffsetsView, Reply, ReplyTo};
use crate::stats::Stats;
use crate::topic::{Log, TopicId};

/// What a page of topics is made of.
pub(crate) struct Listing {
    pub(crate) namespace: Namespace,
    pub(crate) after: Option<TopicName>,
    pub(crate) max: usize,
    pub(crate) dead_letters_only: bool,
}

impl Bus {
    /// Makes a topic, or gives an existing one this configuration.
    pub(crate) fn create_topic(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: &TopicKey,
        mut config: TopicConfig,
    ) -> Result<(), BusError> {
        let known = self.topic_ids.get(topic).copied();
        let current = known.and_then(|id| self.topics.get(&id)).map_or(0, |topic| topic.config.partitions);
        // Not said means: as it is.
        if config.partitions == 0 {
            config.partitions = current;
        }
        let config = self.checked(config)?;
        if let Some(id) = known {
            if config.partitions < current {
                let asked = config.partitions;
                return Err(BusError::BadConfig(millrace_model::ConfigError::Shrinks { current, asked }));
            }
            self.reconfigure(now, to, id, config);
            return Ok(());
        }
        let mut ops = Vec::new();
        let id = self.make_topic(topic, config, &mut ops)?;
        self.note_upkeep(now, id);
        self.commit(
            now,
            self.limits.durability,
            ops,
            Pending::TopicWrite { to, topic: topic.clone(), created: true },
        );
        Ok(())
    }

    pub(crate) fn patch_topic(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: &TopicKey,
        patch: &TopicPatch,
    ) -> Result<(), BusError> {
        let id = self.topic_id(topic)?;
        let Some(state) = self.topics.get(&id) else {
            return Ok(());
        };
        let config = self.checked(state.config.patched(patch).map_err(BusError::BadConfig)?)?;
        self.reconfigure(now, to, id, config);
        Ok(())
    }

    fn checked(&self, config: TopicConfig) -> Result<TopicConfig, BusError> {
        let config = config.resolved().map_err(BusError::BadConfig)?;
        if config.partitions > self.limits.partitions_max {
            let (found, max) = (u64::from(config.partitions), u64::from(self.limits.partitions_max));
            return Err(BusError::OutOfRange { what: "partitions", found, max });
        }
        let max = self.limits.dedupe_window_ms_max;
        if let Some(found) = config.dedupe_window_ms.filter(|window| *window > max) {
            return Err(BusError::OutOfRange { what: "dedupeWindowMs", found, max });
        }
        Ok(config)
    }

    /// New partitions are read from their first event by every group: all of it is newer than the group.
    fn reconfigure(&mut self, now: Now, to: ReplyTo, id: TopicId, config: TopicConfig) {
        let Some(topic) = self.topics.get_mut(&id) else {
            return;
        };
        // A cursor without a row stands at its log's start, so none has to be written.
        for _ in topic.logs.len() as u32..config.partitions {
            topic.logs.push(Log::new());
            for group in topic.groups.values() {
                if let Some(state) = self.groups.get_mut(group) {
                    state.cursors.push(Cursor::at(Offset::FIRST));
                }
            }
        }
        topic.config = config;
        let key = topic.key.clone();
        let value = topic.row().encode();
        let ops = vec![Op::Put { space: Space::Topics, key: keys::topic(&key), value }];
        self.note_upkeep(now, id);
        self.evict(now, &key);
        self.commit(now, self.limits.durability, ops, Pending::TopicWrite { to, topic: key, created: false });
    }

    pub(crate) fn note_upkeep(&mut self, now: Now, id: TopicId) {
        let limited = self.topics.get(&id).is_some_and(|topic| {
            topic.config.retention_ms.is_some() || topic.config.retention_bytes.is_some()
        });
        if limited {
            self.expect_retention(now);
        }
        if self.topics.get(&id).is_some_and(|topic| topic.config.compact) {
            self.expect_compaction(now);
        }
    }

    pub(crate) fn topic_written(&mut self, to: ReplyTo, key: TopicKey, created: bool) {
        match self.topic_ids.get(&key).and_then(|id| self.topics.get(id)) {
            Some(topic) => {
                let view = topic.view();
                self.reply(to, Reply::Topic { created, topic: view });
            }
            None => self.refuse(to, BusError::TopicDeleted(key)),
        }
    }

    /// Everything of the topic goes: events, groups, positions. Members are told.
    pub(crate) fn delete_topic(&mut self, now: Now, to: ReplyTo, topic: TopicKey) -> Result<(), BusError> {
        let id = self.topic_id(&topic)?;
        self.topic_ids.remove(&topic);
        let Some(state) = self.topics.remove(&id) else { return Ok(()) };
        self.tail_bytes -= state.tail_bytes();
        // Groups first, in batches of their own: should a crash come in between, a topic without some of its groups is
        // left, and never groups that a later topic of that name would inherit.
        let mut ops = Vec::new();
        self.leave_lists_to_dead_letters(&topic, &state.config, &mut ops);
        let gone = BusError::TopicDeleted(topic.clone());
        for group in state.groups.values() {
            self.forget_group(*group, &gone, &mut ops);
        }
        let mut ops = self.commit_most(now, ops);
        ops.push(Op::Delete { space: Space::Topics, key: keys::topic(&topic) });
        ops.push(Op::Drop { topic: topic.clone() });
        self.commit(now, self.limits.durability, ops, Pending::TopicDelete { to, topic });
        Ok(())
    }

    pub(crate) fn list_topics(&mut self, to: ReplyTo, by: &By, listing: &Listing) -> Result<(), BusError> {
        let Listing { namespace, after, max, dead_letters_only } = listing;
        let after = after.as_ref().map(|after| TopicKey::new(namespace, after));
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let seen = |key: &TopicKey| {
            key.namespace() == namespace.as_str()
                && (!dead_letters_only || key.is_dead_letter())
                && self.permit(by.as_deref(), Action::Subscribe, key).is_ok()
        };
        let mut found =
            self.topic_ids.range::<TopicKey, _>((from, Bound::Unbounded)).filter(|(key, _)| seen(key));
        let page = found.by_ref().take(*max).filter_map(|(_, id)| self.topics.get(id));
        let topics = page.map(crate::topic::Topic::view).collect();
        let more = found.next().is_some();
        self.reply(to, Reply::Topics { topics, more });
        Ok(())
    }

    pub(crate) fn describe_topic(&mut self, to: ReplyTo, topic: TopicKey) -> Result<(), BusError> {
        let id = self.topic_id(&topic)?;
        let Some(state) = self.topics.get(&id) else {
            return Err(BusError::UnknownTopic(topic));
        };
        let view = state.view();
        self.reply(to, Reply::Topic { created: false, topic: view });
        Ok(())
    }

    pub(crate) fn offsets(&mut self, to: ReplyTo, topic: TopicKey) -> Result<(), BusError> {
        let id = self.topic_id(&topic)?;
        let Some(state) = self.topics.get(&id) else {
            return Err(BusError::UnknownTopic(topic));
        };
        let placed = || {
            let groups = state.groups.iter().filter_map(|(name, id)| Some((name, self.groups.get(id)?)));
            groups.filter(|(_, group)| group.placed)
        };
        let partitions = state.bounds().map(|log| {
            let groups = placed().filter_map(|(name, group)| {
                let cursor = group.cursors.get(log.partition.0 as usize)?;
                let committed = cursor.durable;
                let lag = log.next.before().0.saturating_sub(committed.0);
                Some((name.clone(), GroupView { committed, lag, inflight: cursor.leases().count() as u64 }))
            });
            (log, groups.collect::<BTreeMap<_, _>>())
        });
        let view = OffsetsView { topic, partitions: partitions.collect() };
        self.reply(to, Reply::Offsets(view));
        Ok(())
    }

    pub(crate) fn stats(&self) -> Stats {
        let (mut inflight, mut lag) = (0, 0);
        for group in self.groups.values() {
            let Some(topic) = self.topics.get(&group.topic) else {
                continue;
            };
            for (cursor, log) in group.cursors.iter().zip(&topic.logs) {
                inflight += cursor.leases().count() as u64;
                lag += log.next.before().0.saturating_sub(cursor.durable.0);
            }
        }
        Stats {
            counters: self.counters.clone(),
            by_topic: self.topics.values().map(|topic| (topic.key.clone(), topic.counters.clone())).collect(),
            topics_with_access: self.topics.values().filter(|topic| topic.config.has_access()).count() as u64,
            connections: self.conns.len() as u64,
            topics: self.topics.len() as u64,
            groups: self.groups.len() as u64,
            subscriptions: self.topics.values().map(|topic| topic.members as u64).sum(),
            inflight,
            lag,
            delayed: self.due.wake.is_some(),
            commits_pending: self.pending.len() as u64,
            storage_failed: self.failed.clone(),
            stopping: self.stopping,
        }
    }
}
