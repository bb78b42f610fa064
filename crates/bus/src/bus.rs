//! The engine's outer shape: its state, the loop's four verbs, and the table that forwards each input.

use std::collections::{BTreeMap, BTreeSet};

use millrace_model::{Batch, Durability, Mono, Now, Op, Space, TopicConfig, TopicKey, TopicRow, keys};

use crate::admin::Listing;
use crate::compaction::CompactionState;
use crate::connection::Connection;
use crate::cursor::Cursor;
use crate::due::DueState;
use crate::effect::Effect;
use crate::elsewhere::Elsewhere;
use crate::group::{CursorRef, GroupId, GroupState};
use crate::input::{By, ConnId, Input, Request, Token};
use crate::limits::BusLimits;
use crate::pending::Pending;
use crate::reply::{BusError, Reply, ReplyTo};
use crate::retention::RetentionState;
use crate::stats::Counters;
use crate::topic::{Topic, TopicId};

/// The bus. Owned by one loop:
///
/// ```text
/// for input in inputs { bus.handle(now, input) }
/// bus.settle(now);                    // also does what became due
/// for effect in bus.drain() { ... }
/// wait until bus.next_deadline() or the next input
/// ```
#[derive(Debug)]
pub struct Bus {
    pub(crate) limits: BusLimits,
    pub(crate) seed: u64,
    pub(crate) topics: BTreeMap<TopicId, Topic>,
    pub(crate) topic_ids: BTreeMap<TopicKey, TopicId>,
    pub(crate) groups: BTreeMap<GroupId, GroupState>,
    pub(crate) conns: BTreeMap<ConnId, Connection>,
    pub(crate) pending: BTreeMap<Token, Pending>,
    tokens: u64,
    pub(crate) topics_made: u32,
    pub(crate) groups_made: u32,
    pub(crate) effects: Vec<Effect>,
    /// Groups for which something changed since the last `settle`.
    pub(crate) to_pump: BTreeSet<GroupId>,
    pub(crate) to_flush: BTreeSet<CursorRef>,
    pub(crate) wakes: BTreeSet<(Mono, CursorRef)>,
    pub(crate) tail_bytes: usize,
    /// Read ahead for all groups together.
    pub(crate) fetched_bytes: usize,
    pub(crate) due: DueState,
    pub(crate) retention: RetentionState,
    pub(crate) compaction: CompactionState,
    pub(crate) elsewhere: Elsewhere,
    pub(crate) counters: Counters,
    pub(crate) failed: Option<String>,
    pub(crate) stopping: bool,
    stopped: bool,
}

impl Bus {
    pub(crate) fn empty(limits: BusLimits, seed: u64) -> Bus {
        Bus {
            limits,
            seed,
            topics: BTreeMap::new(),
            topic_ids: BTreeMap::new(),
            groups: BTreeMap::new(),
            conns: BTreeMap::new(),
            pending: BTreeMap::new(),
            tokens: 0,
            topics_made: 0,
            groups_made: 0,
            effects: Vec::new(),
            to_pump: BTreeSet::new(),
            to_flush: BTreeSet::new(),
            wakes: BTreeSet::new(),
            tail_bytes: 0,
            fetched_bytes: 0,
            due: DueState::default(),
            retention: RetentionState::default(),
            compaction: CompactionState::default(),
            elsewhere: Elsewhere::default(),
            counters: Counters::default(),
            failed: None,
            stopping: false,
            stopped: false,
        }
    }

    /// Takes one input. Effects gather until they are drained.
    pub fn handle(&mut self, now: Now, input: Input) {
        match input {
            Input::Open { conn, .. } => {
                self.conns.insert(conn, Connection::default());
            }
            Input::Close { conn } => self.close(now, conn),
            Input::Congested { conn } => self.set_congested(conn, true),
            Input::Drained { conn } => self.set_congested(conn, false),
            Input::Request { to, by, request } => self.request(now, to, by, request),
            Input::Committed { token, outcome } => self.committed(now, token, outcome),
            Input::TooLarge { token, bytes } => self.too_large(now, token, bytes),
            Input::StorageFailed { reason } => self.storage_failed(&reason),
            Input::Page { token, page } => self.page(now, token, page),
            Input::Found { token, offsets } => self.found(now, token, offsets),
            Input::DueRows { token, rows } => self.due_rows(now, token, rows),
            Input::Elsewhere { reaches } => self.reported(&reaches),
            Input::TopicRead { token, found } => self.topic_read(now, token, found),
            Input::Stop => self.stop(),
        }
    }

    /// Does what became due, delivers what can be delivered, asks for the commits that acks made necessary.
    pub fn settle(&mut self, now: Now) {
        if self.failed.is_some() {
            return;
        }
        self.wake_cursors(now);
        self.wake_due(now);
        self.wake_retention(now);
        self.wake_compaction(now);
        self.wake_elsewhere(now);
        let mut pumped = BTreeSet::new();
        while let Some(group) = self.to_pump.pop_first() {
            let before = self.groups.get(&group).map_or(0, GroupState::fetched_bytes);
            self.pump(now, group);
            self.account_fetched(group, before);
            pumped.extend(self.groups.get(&group).map(|group| group.topic));
        }
        for topic in pumped {
            self.trim_tails(topic);
        }
        self.flush_all(now);
        if self.stopping && !self.stopped && self.pending.is_empty() {
            self.stopped = true;
            self.effects.push(Effect::Stopped);
        }
    }

    pub fn drain(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// When `settle` must be called again at the latest; `None` = not before the next input.
    pub fn next_deadline(&self) -> Option<Mono> {
        if self.failed.is_some() {
            return None;
        }
        let cursor = self.wakes.first().map(|(at, _)| *at);
        [cursor, self.due.wake, self.retention.wake, self.compaction.wake, self.elsewhere.wake]
            .into_iter()
            .flatten()
            .min()
    }

    fn request(&mut self, now: Now, to: ReplyTo, by: By, request: Request) {
        let reads_only = matches!(
            request,
            Request::ListTopics { .. }
                | Request::DescribeTopic { .. }
                | Request::Offsets { .. }
                | Request::ListGroups { .. }
                | Request::Stats
                | Request::Flow { .. }
        );
        if let (Some(reason), false) = (&self.failed, reads_only) {
            return self.refuse(to, BusError::StorageFailed(reason.clone()));
        }
        if self.stopping && !reads_only {
            return self.refuse(to, BusError::ShuttingDown);
        }
        if let Err(error) = self.admit(&by, &request) {
            return self.refuse(to, error);
        }
        let result = match request {
            Request::Publish(publish) => self.publish(now, to, publish),
            Request::PublishBatch(batch) => self.publish_batch(now, to, batch),
            Request::Record(batch) => self.record(now, to, batch),
            Request::Write { ops, durability } => self.write(now, to, ops, durability),
            Request::Subscribe(subscribe) => {
                self.remember(to, by);
                self.subscribe(now, to, subscribe)
            }
            Request::Unsubscribe { topic, group } => self.unsubscribe(now, to, topic, group),
            Request::Ack(ack) => self.ack(to, ack),
            Request::Nack(nack) => self.nack(now, to, nack),
            Request::GiveBack(given) => self.give_back(to, given),
            Request::Flow { credits } => self.flow(to, credits),
            Request::CreateTopic { topic, config } => self.create_topic(now, to, &topic, config),
            Request::PatchTopic { topic, patch } => self.patch_topic(now, to, &topic, &patch),
            Request::DeleteTopic { topic } => self.delete_topic(now, to, topic),
            Request::ListTopics { namespace, after, max, dead_letters_only } => {
                self.list_topics(to, &by, &Listing { namespace, after, max, dead_letters_only })
            }
            Request::DescribeTopic { topic } => self.describe_topic(to, topic),
            Request::Offsets { topic } => self.offsets(to, topic),
            Request::ListGroups { topic } => self.list_groups(to, topic),
            Request::DeleteGroup { topic, group } => self.delete_group(now, to, topic, group),
            Request::SeekGroup { topic, group, partition, from } => {
                self.seek_group(now, to, topic, group, partition, from)
            }
            Request::Stats => {
                let stats = Box::new(self.stats());
                self.reply(to, Reply::Stats(stats));
                Ok(())
            }
        };
        if let Err(error) = result {
            self.refuse(to, error);
        }
    }

    pub(crate) fn reply(&mut self, to: ReplyTo, reply: Reply) {
        match to {
            ReplyTo::Nobody => {}
            ReplyTo::Conn { conn, .. } if !self.conns.contains_key(&conn) => {}
            _ => self.effects.push(Effect::Reply { to, reply }),
        }
    }

    pub(crate) fn refuse(&mut self, to: ReplyTo, error: BusError) {
        self.reply(to, Reply::Refused(error));
    }

    pub(crate) fn token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    /// Random to the outside, a function of the seed to the simulator.
    pub(crate) fn nonce(&self, token: Token) -> u64 {
        let mut x = self.seed ^ token.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn commit(
        &mut self,
        now: Now,
        durability: Durability,
        ops: Vec<Op>,
        pending: Pending,
    ) -> Token {
        let token = self.token();
        self.elsewhere.watch(token, &ops);
        let batch = Batch { nonce: self.nonce(token), now: now.wall, durability, checks: Vec::new(), ops };
        self.pending.insert(token, pending);
        self.effects.push(Effect::Commit { token, batch });
        token
    }

    /// The topic, made now if need be. The row that makes it durable is added to `ops`.
    pub(crate) fn topic_or_create(&mut self, key: &TopicKey, ops: &mut Vec<Op>) -> Result<TopicId, BusError> {
        if let Some(id) = self.topic_ids.get(key) {
            return Ok(*id);
        }
        if !self.limits.auto_create {
            return Err(BusError::NoAutoCreate(key.clone()));
        }
        self.make_topic(key, TopicConfig { partitions: 1, ..TopicConfig::default() }, ops)
    }

    pub(crate) fn make_topic(
        &mut self,
        key: &TopicKey,
        config: TopicConfig,
        ops: &mut Vec<Op>,
    ) -> Result<TopicId, BusError> {
        if self.topics.len() >= self.limits.topics_max {
            return Err(BusError::LimitReached { what: "topics", max: self.limits.topics_max as u64 });
        }
        Ok(self.make_topic_unbounded(key, config, ops))
    }

    /// Whatever the limit of topics says: for dead letters, where the alternative would be to lose an event.
    pub(crate) fn make_topic_unbounded(
        &mut self,
        key: &TopicKey,
        config: TopicConfig,
        ops: &mut Vec<Op>,
    ) -> TopicId {
        let token = self.token();
        let row = TopicRow { config, made: self.nonce(token) };
        ops.push(Op::Put { space: Space::Topics, key: keys::topic(key), value: row.encode() });
        self.insert_topic(key.clone(), row)
    }

    pub(crate) fn insert_topic(&mut self, key: TopicKey, row: TopicRow) -> TopicId {
        self.topics_made += 1;
        let id = TopicId(self.topics_made);
        self.topic_ids.insert(key.clone(), id);
        self.topics.insert(id, Topic::new(key, row));
        id
    }

    pub(crate) fn topic_id(&self, key: &TopicKey) -> Result<TopicId, BusError> {
        self.topic_ids.get(key).copied().ok_or_else(|| BusError::UnknownTopic(key.clone()))
    }

    pub(crate) fn cursor_mut(&mut self, at: CursorRef) -> Option<&mut Cursor> {
        self.groups.get_mut(&at.group)?.cursors.get_mut(at.partition as usize)
    }

    /// To be called after whatever may have changed what a group has read ahead.
    pub(crate) fn account_fetched(&mut self, group: GroupId, before: usize) {
        let after = self.groups.get(&group).map_or(0, GroupState::fetched_bytes);
        self.fetched_bytes = (self.fetched_bytes + after).saturating_sub(before);
    }

    /// Registers the moment a cursor must be looked at, if it is earlier than the one it is registered for.
    pub(crate) fn wake_at(&mut self, at: CursorRef, when: Mono) {
        let Some(cursor) = self.cursor_mut(at) else { return };
        if let Some(registered) = cursor.wake {
            if registered <= when {
                return;
            }
            self.wakes.remove(&(registered, at));
        }
        if let Some(cursor) = self.cursor_mut(at) {
            cursor.wake = Some(when);
        }
        self.wakes.insert((when, at));
    }

    #[cfg(feature = "sabotage")]
    pub(crate) fn sabotaged(&self, by: crate::sabotage::Sabotage) -> bool {
        self.limits.sabotage == Some(by)
    }

    #[cfg(not(feature = "sabotage"))]
    pub(crate) fn sabotaged(&self, _by: crate::sabotage::Sabotage) -> bool {
        false
    }
}
