//! Administration of topics: creating, changing, deleting and listing them, and the positions of their groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_model::{
    Action, Namespace, Now, Offset, Op, Partition, Requester, Space, TopicConfig, TopicKey, TopicName,
    TopicPatch, keys,
};

use crate::bus::Bus;
use crate::groups::cursor::Cursor;
use crate::interface::reply::{BusError, GroupView, OffsetsView, Reply, ReplyTo, SchemaView};
use crate::lifecycle::pending::PendingEffect;
use crate::stats::{Counters, GroupGauges, Stats};
use crate::topics::schema::{Compared, TopicSchema};
use crate::topics::schema_change::NewSchema;
use crate::topics::topic::{Log, Topic, TopicId};

/// Parameters of a page of topics.
pub(crate) struct Listing {
    pub(crate) namespace: Namespace,
    pub(crate) after: Option<TopicName>,
    pub(crate) max: usize,
    pub(crate) dead_letters_only: bool,
}

impl Bus {
    /// Creates a topic, or changes these settings of an existing one, which keeps its other settings. A program that
    /// creates its topics when it starts must not take away the schema or the access list that an operator has set.
    pub(crate) fn create_topic(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: &TopicKey,
        settings: TopicPatch,
        only_new: bool,
    ) -> Result<(), BusError> {
        if let Some(id) = self.topics.id(topic) {
            return match only_new {
                true => Err(BusError::TopicExists(topic.clone())),
                false => self.reshape(now, to, id, settings),
            };
        }
        let config = TopicConfig::default().patched(&settings).map_err(BusError::BadConfig)?;
        let config = self.checked(config)?;
        let mut ops = Vec::new();
        let schema = config.schema.as_ref().map(|_| self.compiled(topic, &config, 0)).transpose()?;
        let id = self.make_topic(topic, TopicConfig { schema: None, ..config.clone() }, &mut ops)?;
        if let Some(schema) = schema {
            ops.extend(self.set_config(now, id, config, Some((schema, false))));
        }
        self.note_upkeep(now, id);
        let pending = PendingEffect::TopicWrite {
            to,
            topic: topic.clone(),
            created: true,
            checked: Compared::default(),
        };
        self.commit(now, self.limits.durability, ops, pending);
        Ok(())
    }

    pub(crate) fn patch_topic(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: &TopicKey,
        patch: TopicPatch,
    ) -> Result<(), BusError> {
        let id = self.topics.known(topic)?;
        self.reshape(now, to, id, patch)
    }

    pub(crate) fn checked(&self, config: TopicConfig) -> Result<TopicConfig, BusError> {
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

    /// Applies a new configuration. Every group reads a new partition from its first event, because all of its events
    /// are newer than the group.
    pub(crate) fn reconfigure(
        &mut self,
        now: Now,
        to: ReplyTo,
        id: TopicId,
        config: TopicConfig,
        schema: Option<NewSchema>,
    ) -> Result<(), BusError> {
        let Some(topic) = self.topics.must_mut(id, &self.broken) else {
            return Ok(());
        };
        let more = u64::from(config.partitions).saturating_sub(topic.logs.len() as u64);
        let groups = topic.groups.len() as u64;
        self.totals.partitions_fit(&self.limits, more, groups)?;
        self.totals.partitions_added(more);
        // A cursor without a row stands at its log's start, so no rows are written for the new cursors.
        for _ in topic.logs.len() as u32..config.partitions {
            topic.logs.push(Log::new());
            for group in topic.groups.values() {
                if let Some(state) = self.groups.must_mut(*group, &self.broken) {
                    self.totals.cursors_made(state.made_by.as_ref(), 1);
                    state.cursors.push(Cursor::at(Offset::FIRST));
                }
            }
        }
        let key = topic.key.clone();
        let groups: Vec<_> = topic.groups.values().copied().collect();
        let (schema, checked) = match schema {
            Some(NewSchema { schema, forced, checked }) => (Some((schema, forced)), checked),
            None => (None, Compared::default()),
        };
        let ops = self.set_config(now, id, config, schema);
        for group in groups {
            self.refresh_sticky(group);
            self.agenda.deliver(group);
        }
        self.note_upkeep(now, id);
        self.evict(now, &key);
        let pending = PendingEffect::TopicWrite { to, topic: key, created: false, checked };
        self.commit(now, self.limits.durability, ops, pending);
        Ok(())
    }

    /// Sets the configuration and returns the rows to write. `schema`: the compiled new schema, if there is one, and
    /// whether it was forced.
    fn set_config(
        &mut self,
        now: Now,
        id: TopicId,
        config: TopicConfig,
        schema: Option<(Arc<TopicSchema>, bool)>,
    ) -> Vec<Op> {
        if let Some(topic) = self.topics.must_mut(id, &self.broken) {
            topic.config = config;
        }
        let mut ops = self.follow_config(now, id, schema);
        ops.extend(self.topics.get(id).map(|topic| {
            let (key, value) = (keys::topic(&topic.key), topic.row().encode());
            Op::Put { space: Space::Topics, key, value }
        }));
        ops
    }

    pub(crate) fn note_upkeep(&mut self, now: Now, id: TopicId) {
        let limited = self.topics.get(id).is_some_and(|topic| {
            topic.config.retention_ms.is_some() || topic.config.retention_bytes.is_some()
        });
        if limited {
            self.expect_retention(now);
        }
        if self.topics.get(id).is_some_and(|topic| topic.config.compact) {
            self.expect_compaction(now);
        }
    }

    pub(crate) fn topic_written(&mut self, to: ReplyTo, key: TopicKey, created: bool, checked: Compared) {
        match self.topics.named(&key) {
            Some(topic) => {
                let mut view = topic.view();
                view.schema = view.schema.map(|schema| SchemaView { checked, ..schema });
                self.reply(to, Reply::Topic { created, topic: Box::new(view) });
            }
            None => self.refuse(to, BusError::TopicDeleted(key)),
        }
    }

    /// Deletes the topic with its events, groups and positions, and notifies the members.
    pub(crate) fn delete_topic(&mut self, now: Now, to: ReplyTo, topic: TopicKey) -> Result<(), BusError> {
        let Some(state) = self.topics.remove(&topic) else {
            return Err(BusError::UnknownTopic(topic));
        };
        self.totals.topic_gone(state.made_by.as_ref(), state.logs.len() as u64);
        // Groups are deleted first, in batches of their own: a crash in between leaves a topic without some of its
        // groups, never groups without a topic, which a later topic of that name would inherit.
        let mut ops = Vec::new();
        let mut versions = Vec::new();
        self.forget_schema(&state, &mut versions);
        self.leave_lists_to_dead_letters(&topic, &state.config, &mut ops);
        let gone = BusError::TopicDeleted(topic.clone());
        for group in state.groups.values() {
            self.forget_group(*group, &gone, &mut ops);
        }
        let mut ops = self.commit_most(now, ops);
        ops.extend(versions);
        ops.push(Op::Delete { space: Space::Topics, key: keys::topic(&topic) });
        ops.push(Op::Drop { topic: topic.clone() });
        self.commit(now, self.limits.durability, ops, PendingEffect::TopicDelete { to, topic });
        Ok(())
    }

    pub(crate) fn list_topics(
        &mut self,
        to: ReplyTo,
        by: &Requester,
        listing: &Listing,
    ) -> Result<(), BusError> {
        let Listing { namespace, after, max, dead_letters_only } = listing;
        let after = after.as_ref().map(|after| TopicKey::new(namespace, after));
        let seen = |key: &TopicKey| {
            key.namespace() == namespace.as_str()
                && (!dead_letters_only || key.is_dead_letter())
                && self.permit(by, Action::Subscribe, key).is_ok()
        };
        let mut found = self.topics.by_name(after.as_ref()).filter(|topic| seen(&topic.key));
        let topics = found.by_ref().take(*max).map(Topic::view).collect();
        let more = found.next().is_some();
        drop(found);
        self.reply(to, Reply::Topics { topics, more });
        Ok(())
    }

    pub(crate) fn describe_topic(&mut self, to: ReplyTo, topic: TopicKey) -> Result<(), BusError> {
        let id = self.topics.known(&topic)?;
        let Some(state) = self.topics.get(id) else {
            return Err(BusError::UnknownTopic(topic));
        };
        let view = state.view();
        self.reply(to, Reply::Topic { created: false, topic: Box::new(view) });
        Ok(())
    }

    pub(crate) fn offsets(&mut self, to: ReplyTo, topic: TopicKey) -> Result<(), BusError> {
        let id = self.topics.known(&topic)?;
        let Some(state) = self.topics.get(id) else {
            return Err(BusError::UnknownTopic(topic));
        };
        let with_position = || {
            let groups = state.groups.iter().filter_map(|(name, id)| Some((name, self.groups.get(*id)?)));
            groups.filter(|(_, group)| group.has_position)
        };
        let partitions = state.bounds().map(|log| {
            let groups = with_position().filter_map(|(name, group)| {
                let cursor = group.cursors.get(log.partition.0 as usize)?;
                let (committed, updated) = (cursor.flush.durable(), cursor.flush.durable_since());
                let lag = log.next.before().0.saturating_sub(committed.0);
                let inflight = cursor.window.leases().count() as u64;
                Some((name.clone(), GroupView { committed, updated, lag, inflight }))
            });
            (log, groups.collect::<BTreeMap<_, _>>())
        });
        let view = OffsetsView { topic, partitions: partitions.collect() };
        self.reply(to, Reply::Offsets(view));
        Ok(())
    }

    fn dead_letters(&self) -> BTreeMap<TopicKey, u64> {
        let of_users = self.topics.values().filter(|topic| topic.key.is_dead_letter() && !topic.system);
        let letters = |log: &Log| log.next.0.saturating_sub(log.start.0);
        of_users.map(|topic| (topic.key.clone(), topic.logs.iter().map(letters).sum())).collect()
    }

    pub(crate) fn stats(&self, now: Now) -> Stats {
        let by_group: Vec<GroupGauges> = self
            .topics
            .by_name(None)
            .flat_map(|topic| topic.groups.iter().map(move |(name, id)| (topic, name, id)))
            .filter_map(|(topic, name, id)| {
                let state = self.groups.get(*id)?;
                let mut gauges = GroupGauges {
                    topic: topic.key.clone(),
                    group: name.clone(),
                    inflight: 0,
                    oldest_inflight_ms: 0,
                    lag: 0,
                    paused: state.paused,
                    behind: Vec::new(),
                };
                for ((cursor, log), partition) in state.cursors.iter().zip(&topic.logs).zip(0..) {
                    for (_, lease) in cursor.window.leases() {
                        gauges.inflight += 1;
                        let held_ms = now.mono.0.saturating_sub(lease.since.0);
                        gauges.oldest_inflight_ms = gauges.oldest_inflight_ms.max(held_ms);
                    }
                    let durable = cursor.flush.durable();
                    let lag = log.next.before().0.saturating_sub(durable.0);
                    gauges.lag += lag;
                    if lag > 0 {
                        gauges.behind.push((Partition(partition), durable.next().max(log.start)));
                    }
                }
                Some(gauges)
            })
            .collect();
        let (inflight, lag) =
            by_group.iter().fold((0, 0), |(inflight, lag), one| (inflight + one.inflight, lag + one.lag));
        Stats {
            counters: Counters { never: self.never_count(), ..self.counters.clone() },
            ack_times: self.ack_times.clone(),
            by_topic: self.topics.values().map(|topic| (topic.key.clone(), topic.counters.clone())).collect(),
            dead_letters: self.dead_letters(),
            topics_with_access: self.topics.values().filter(|topic| topic.config.has_access()).count() as u64,
            connections: self.conns.len() as u64,
            topics: self.topics.len() as u64,
            groups: self.groups.len() as u64,
            subscriptions: self.topics.values().map(|topic| topic.members() as u64).sum(),
            by_group,
            inflight,
            lag,
            tail_bytes: self.topics.tail_bytes() as u64,
            fetched_bytes: self.groups.fetched_bytes() as u64,
            delayed: self.due.wake().is_some(),
            commits_pending: self.pending.len() as u64,
            storage_failed: self.lifecycle.failed().map(str::to_owned),
            stopping: self.lifecycle.is_stopping(),
        }
    }
}
