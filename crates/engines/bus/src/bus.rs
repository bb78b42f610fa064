//! The engine's state, the four methods its loop calls (`handle`, `settle`, `drain`, `next_deadline`), and the table
//! that forwards each input.

use std::collections::{BTreeMap, BTreeSet};

use millrace_model::{
    Actor, AgeGuard, Batch, Check, Durability, Elapsed, Mono, Now, Op, Requester, Space, TopicConfig,
    TopicKey, TopicRow, keys,
};

use crate::groups::connection::Connection;
use crate::groups::cursor::Cursor;
use crate::groups::group::{CursorRef, GroupId, GroupState};
use crate::groups::subscribe::Departure;
use crate::interface::effect::Effect;
use crate::interface::input::{ConnId, Input, Request, Token};
use crate::interface::reply::{BusError, Reply, ReplyTo};
use crate::lifecycle::pending::Pending;
use crate::limits::BusLimits;
use crate::publishing::due::DueState;
use crate::publishing::foreign_appends::Elsewhere;
use crate::stats::Counters;
use crate::topics::admin::Listing;
use crate::topics::ages::AgesRowState;
use crate::topics::compaction::CompactionState;
use crate::topics::retention::RetentionState;
use crate::topics::schema::SchemaVerdict;
use crate::topics::schema_change::Resend;
use crate::topics::topic::{Topic, TopicId};
use crate::topics::totals::{Totals, sharer};

/// The bus engine. Owned by one loop:
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
    pub(crate) to_deliver: BTreeSet<GroupId>,
    pub(crate) to_flush: BTreeSet<CursorRef>,
    pub(crate) wakes: BTreeSet<(Mono, CursorRef)>,
    pub(crate) tail_bytes: usize,
    /// How many topics have a schema, and the bytes of these schemas' documents.
    pub(crate) schemas: usize,
    pub(crate) schemas_bytes: usize,
    /// Bytes of events read ahead, for all groups together.
    pub(crate) fetched_bytes: usize,
    /// The clock that delays are counted on.
    pub(crate) elapsed: Elapsed,
    pub(crate) ages: AgeGuard,
    pub(crate) ages_row: AgesRowState,
    pub(crate) due: DueState,
    pub(crate) retention: RetentionState,
    pub(crate) compaction: CompactionState,
    pub(crate) elsewhere: Elsewhere,
    /// How many keys have a remembered member, over all sticky groups.
    pub(crate) sticky_keys: usize,
    /// How many events wait for their key or its member, over all sticky groups.
    pub(crate) sticky_waiting: usize,
    pub(crate) totals: Totals,
    /// The agent against whose share topics count that the current request creates; `None` = nobody's share.
    pub(crate) asked_by: Option<Actor>,
    pub(crate) counters: Counters,
    pub(crate) failed: Option<String>,
    /// Why the store must not grow for now: requests that add to it are refused (see `adds`).
    no_space: Option<String>,
    pub(crate) stopping: bool,
    stopped: bool,
}

impl Bus {
    pub(crate) fn empty(limits: BusLimits, seed: u64) -> Bus {
        let ages = AgeGuard::new(limits.clock_settle_ms);
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
            to_deliver: BTreeSet::new(),
            to_flush: BTreeSet::new(),
            wakes: BTreeSet::new(),
            tail_bytes: 0,
            schemas: 0,
            schemas_bytes: 0,
            fetched_bytes: 0,
            elapsed: Elapsed::default(),
            ages,
            ages_row: AgesRowState::default(),
            due: DueState::default(),
            retention: RetentionState::default(),
            compaction: CompactionState::default(),
            elsewhere: Elsewhere::default(),
            sticky_keys: 0,
            sticky_waiting: 0,
            totals: Totals::default(),
            asked_by: None,
            counters: Counters::default(),
            failed: None,
            no_space: None,
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
            Input::Close { conn } => self.close(now, conn, Departure::Lost),
            Input::Evict { conn } => self.close(now, conn, Departure::Willing),
            Input::Congested { conn } => self.set_congested(conn, true),
            Input::Drained { conn } => self.set_congested(conn, false),
            Input::Request { to, by, request, checked } => self.request(now, to, by, request, checked),
            Input::Committed { token, outcome } => self.committed(now, token, outcome),
            Input::TooLarge { token, bytes } => self.too_large(now, token, bytes),
            Input::StorageFailed { reason } => self.storage_failed(&reason),
            Input::NoSpace { reason } => self.no_space = reason,
            Input::Page { token, page } => self.page(now, token, page),
            Input::Found { token, offsets } => self.found(now, token, offsets),
            Input::DueRows { token, rows } => self.due_rows(now, token, rows),
            Input::Elsewhere { reaches, delayed } => {
                self.reported(&reaches);
                delayed.iter().for_each(|delayed| self.delayed_elsewhere(now, delayed));
            }
            Input::TopicRead { token, found } => self.topic_read(now, token, found),
            Input::RetainedChecked { token, outcome } => self.retained_checked(now, token, outcome),
            Input::Stop => self.stop(now),
        }
    }

    /// Does what became due, delivers what can be delivered, asks for the commits that acks made necessary.
    pub fn settle(&mut self, now: Now) {
        if self.failed.is_some() {
            return;
        }
        self.ages.tell(now);
        self.keep_elapsed(now);
        self.keep_ages(now);
        self.wake_cursors(now);
        self.wake_due(now);
        self.wake_retention(now);
        self.wake_compaction(now);
        self.wake_elsewhere(now);
        let mut pumped = BTreeSet::new();
        while let Some(group) = self.to_deliver.pop_first() {
            let before = self.groups.get(&group).map_or(0, GroupState::fetched_bytes);
            self.deliver_ready(now, group);
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

    fn request(
        &mut self,
        now: Now,
        to: ReplyTo,
        by: Requester,
        request: Request,
        checked: Option<Box<SchemaVerdict>>,
    ) {
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
        let matched = self.admit(&by, &request).and_then(|()| self.match_schema(&request, checked));
        let resend = match matched {
            Ok(resend) => resend,
            Err(error) => return self.refuse(to, error),
        };
        if let Some(reason) = self.no_space.as_ref().filter(|_| adds(&request)) {
            let error = BusError::NoSpace(reason.clone());
            return self.refuse(to, error);
        }
        self.asked_by = sharer(&by);
        let result = match request {
            Request::Publish(publish) => self.publish(now, to, publish, resend),
            Request::PublishBatch(batch) => self.publish_batch(now, to, batch, resend),
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
            Request::CreateTopic { topic, settings, only_new } => {
                self.create_topic(now, to, &topic, *settings, only_new)
            }
            Request::PatchTopic { topic, patch } => self.patch_topic(now, to, &topic, *patch),
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
        self.asked_by = None;
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

    /// Returns a number that looks random from outside and is a function of seed and token, so that the simulator can
    /// repeat a run.
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
        self.commit_if(now, durability, Vec::new(), ops, pending)
    }

    /// Commits published events. A resend (see [`Resend`]) is committed only if each of its events that does not match
    /// the schema was stored before.
    pub(crate) fn commit_published(
        &mut self,
        now: Now,
        durability: Durability,
        resend: Option<Resend>,
        ops: Vec<Op>,
        pending: Pending,
    ) {
        match resend {
            None => self.commit(now, durability, ops, pending),
            Some(mut resend) => {
                let checks = std::mem::take(&mut resend.checks);
                let pending = Pending::Resend { resend, then: Box::new(pending) };
                self.commit_if(now, durability, checks, ops, pending)
            }
        };
    }

    pub(crate) fn commit_if(
        &mut self,
        now: Now,
        durability: Durability,
        checks: Vec<Check>,
        ops: Vec<Op>,
        pending: Pending,
    ) -> Token {
        let token = self.token();
        self.ages_row.has_commits = true;
        self.elsewhere.watch(token, &ops);
        let batch = Batch { nonce: self.nonce(token), now: now.wall, durability, checks, ops };
        self.pending.insert(token, pending);
        self.effects.push(Effect::Commit { token, batch });
        token
    }

    /// Returns the topic, and creates it if it does not exist. The row that makes it durable is added to `ops`.
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
        self.totals.topic_fits(&self.limits, self.asked_by.as_ref())?;
        self.totals.partitions_fit(&self.limits, u64::from(config.partitions.max(1)), 0)?;
        Ok(self.make_topic_unbounded(key, config, ops))
    }

    /// Creates a topic whatever the limits say: for dead letters, where a refusal would lose an event, and for the
    /// server's own topics.
    pub(crate) fn make_topic_unbounded(
        &mut self,
        key: &TopicKey,
        config: TopicConfig,
        ops: &mut Vec<Op>,
    ) -> TopicId {
        let token = self.token();
        let made_by = self.asked_by.clone();
        let row = TopicRow { config, incarnation: self.nonce(token), made_by, ..TopicRow::default() };
        ops.push(Op::Put { space: Space::Topics, key: keys::topic(key), value: row.encode() });
        self.insert_topic(key.clone(), row)
    }

    pub(crate) fn insert_topic(&mut self, key: TopicKey, row: TopicRow) -> TopicId {
        self.topics_made += 1;
        let id = TopicId(self.topics_made);
        self.topic_ids.insert(key.clone(), id);
        let topic = Topic::new(key, row);
        self.totals.partitions += topic.logs.len() as u64;
        self.totals.topic_made(topic.made_by.as_ref());
        self.topics.insert(id, topic);
        self.restore_schema(id);
        id
    }

    pub(crate) fn topic_id(&self, key: &TopicKey) -> Result<TopicId, BusError> {
        self.topic_ids.get(key).copied().ok_or_else(|| BusError::UnknownTopic(key.clone()))
    }

    pub(crate) fn cursor_mut(&mut self, at: CursorRef) -> Option<&mut Cursor> {
        self.groups.get_mut(&at.group)?.cursors.get_mut(at.partition as usize)
    }

    /// Updates the total of `fetched_bytes`. To be called after anything that may have changed what the group has read
    /// ahead; `before` is the group's number of bytes before that.
    pub(crate) fn account_fetched(&mut self, group: GroupId, before: usize) {
        let after = self.groups.get(&group).map_or(0, GroupState::fetched_bytes);
        self.fetched_bytes = (self.fetched_bytes + after).saturating_sub(before);
    }

    /// Registers when the cursor must be woken, if that is earlier than its registered time.
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

/// Whether the request is refused while the disk has too little room. Creating topics and groups, acks and removals are
/// not: they write little, and some of them free space.
fn adds(request: &Request) -> bool {
    match request {
        Request::Publish(_) | Request::PublishBatch(_) => true,
        // A `Record` without events only creates a topic of the server itself.
        Request::Record(batch) => !batch.events.is_empty(),
        Request::Write { ops, .. } => ops.iter().any(|op| !matches!(op, Op::Delete { .. })),
        _ => false,
    }
}
