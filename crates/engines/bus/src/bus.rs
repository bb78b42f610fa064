//! The engine's state, the four methods its loop calls (`handle`, `settle`, `drain`, `next_deadline`), and the table
//! that forwards each input.

use std::collections::BTreeSet;

use millrace_model::{
    Batch, Broken, Check, Durability, Elapsed, Mono, Now, Op, Requester, Space, TopicConfig, TopicKey,
    TopicRow, keys,
};

use crate::agenda::Agenda;
use crate::groups::connection::Connections;
use crate::groups::group::CursorRef;
use crate::groups::subscribe::Departure;
use crate::groups::table::Groups;
use crate::interface::effect::Effect;
use crate::interface::input::{Input, Request, Token};
use crate::interface::reply::{BusError, Reply, ReplyTo};
use crate::invariants::CheckPace;
use crate::lifecycle::outstanding::Outstanding;
use crate::lifecycle::pending::PendingEffect;
use crate::lifecycle::state::Lifecycle;
use crate::limits::BusLimits;
use crate::publishing::due::DueState;
use crate::publishing::foreign_appends::ForeignCommits;
use crate::stats::{AckTimes, Counters};
use crate::topics::admin::Listing;
use crate::topics::ages::Ages;
use crate::topics::compaction::CompactionState;
use crate::topics::retention::RetentionState;
use crate::topics::schema::SchemaVerdict;
use crate::topics::schema_change::DuplicateOnly;
use crate::topics::table::Topics;
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
    /// Drawn at every start: nonces and the hashes of keys derive from it.
    pub(crate) seed: u64,
    pub(crate) topics: Topics,
    pub(crate) groups: Groups,
    pub(crate) conns: Connections,
    pub(crate) pending: Outstanding,
    pub(crate) effects: Vec<Effect>,
    pub(crate) agenda: Agenda,
    /// The clock that delays are counted on.
    pub(crate) elapsed: Elapsed,
    pub(crate) ages: Ages,
    pub(crate) due: DueState,
    pub(crate) retention: RetentionState,
    pub(crate) compaction: CompactionState,
    pub(crate) foreign: ForeignCommits,
    pub(crate) totals: Totals,
    pub(crate) counters: Counters,
    pub(crate) ack_times: AckTimes,
    pub(crate) lifecycle: Lifecycle,
    /// Counts states that cannot occur.
    pub(crate) broken: Broken,
    pub(crate) check_pace: CheckPace,
}

impl Bus {
    pub(crate) fn empty(limits: BusLimits, seed: u64) -> Bus {
        Bus {
            seed,
            topics: Topics::default(),
            groups: Groups::default(),
            conns: Connections::default(),
            pending: Outstanding::new(seed),
            effects: Vec::new(),
            agenda: Agenda::default(),
            elapsed: Elapsed::default(),
            ages: Ages::new(limits.clock_settle_ms),
            due: DueState::default(),
            retention: RetentionState::default(),
            compaction: CompactionState::default(),
            foreign: ForeignCommits::default(),
            totals: Totals::default(),
            counters: Counters::default(),
            ack_times: AckTimes::default(),
            lifecycle: Lifecycle::default(),
            broken: Broken::default(),
            check_pace: CheckPace::default(),
            limits,
        }
    }

    /// Takes one input. Effects gather until they are drained.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.handle_input(now, input);
        self.check_step();
    }

    fn handle_input(&mut self, now: Now, input: Input) {
        match input {
            Input::Open { conn, .. } => self.conns.open(conn),
            Input::Close { conn } => self.close(now, conn, Departure::Lost),
            Input::Evict { conn } => self.close(now, conn, Departure::Willing),
            Input::Congested { conn } => self.set_congested(conn, true),
            Input::Drained { conn } => self.set_congested(conn, false),
            Input::Request { to, by, request, checked } => self.request(now, to, by, request, checked),
            Input::Committed { token, outcome } => self.on_committed(now, token, outcome),
            Input::TooLarge { token, bytes } => self.too_large(now, token, bytes),
            Input::StorageFailed { reason } => self.storage_failed(&reason),
            Input::NoSpace { reason } => self.lifecycle.set_no_space(reason),
            Input::PauseDelivery { is_paused } => self.pause_delivery(is_paused),
            Input::Page { token, page } => self.page(now, token, page),
            Input::Found { token, offsets } => self.found(now, token, offsets),
            Input::DueRows { token, rows } => self.due_rows(now, token, rows),
            Input::ForeignCommits { bounds, delayed } => {
                self.reported(&bounds);
                delayed.iter().for_each(|delayed| self.foreign_delays(now, delayed));
            }
            Input::TopicRead { token, found } => self.topic_read(now, token, found),
            Input::RetainedChecked { token, outcome } => self.retained_checked(now, token, outcome),
            Input::Stop => self.stop(now),
        }
    }

    /// Does what became due, delivers what can be delivered, asks for the commits that acks made necessary.
    pub fn settle(&mut self, now: Now) {
        if self.lifecycle.failed().is_none() {
            self.settle_running(now);
        }
        self.check_step();
    }

    fn settle_running(&mut self, now: Now) {
        self.ages.tell(now);
        self.keep_elapsed(now);
        self.keep_ages(now);
        self.wake_cursors(now);
        self.wake_due(now);
        self.wake_retention(now);
        self.wake_compaction(now);
        self.wake_lookups(now);
        let mut delivered = BTreeSet::new();
        while let Some(group) = self.agenda.next_to_deliver() {
            let before = self.groups.fetched_bytes_of(group);
            self.deliver_ready(now, group);
            self.groups.account_fetched(group, before);
            delivered.extend(self.groups.get(group).map(|group| group.topic));
        }
        for topic in delivered {
            self.trim_tails(topic);
        }
        self.flush_all(now);
        if self.pending.is_empty() && self.lifecycle.end_stop() {
            self.effects.push(Effect::Stopped);
        }
    }

    pub fn drain(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// When `settle` must be called again at the latest; `None` = not before the next input.
    pub fn next_deadline(&self) -> Option<Mono> {
        if self.lifecycle.failed().is_some() {
            return None;
        }
        let background =
            [self.due.wake(), self.retention.wake(), self.compaction.wake(), self.foreign.wake()];
        background.into_iter().chain([self.agenda.next_wake()]).flatten().min()
    }

    /// Returns how often the engine found itself in a state that cannot occur, and went on: 0 unless it has a bug.
    pub fn never_count(&self) -> u64 {
        self.broken.count()
    }

    fn request(
        &mut self,
        now: Now,
        to: ReplyTo,
        by: Requester,
        request: Request,
        checked: Option<Box<SchemaVerdict>>,
    ) {
        let reads_only = request.only_reads();
        if let (Some(reason), false) = (self.lifecycle.failed(), reads_only) {
            let error = BusError::StorageFailed(reason.to_owned());
            return self.refuse(to, error);
        }
        if self.lifecycle.is_stopping() && !reads_only {
            return self.refuse(to, BusError::ShuttingDown);
        }
        let matched = self.admit(&by, &request).and_then(|()| self.match_schema(&request, checked));
        let duplicate_only = match matched {
            Ok(duplicate_only) => duplicate_only,
            Err(error) => return self.refuse(to, error),
        };
        if let Some(reason) = self.lifecycle.no_space().filter(|_| adds(&request)) {
            let error = BusError::NoSpace(reason.to_owned());
            return self.refuse(to, error);
        }
        self.totals.begin_request(sharer(&by));
        let result = match request {
            Request::Publish(publish) => self.publish(now, to, publish, duplicate_only),
            Request::PublishBatch(batch) => self.publish_batch(now, to, batch, duplicate_only),
            Request::Record(batch) => self.record(now, to, batch),
            Request::Subscribe(subscribe) => {
                self.remember(to, by);
                self.subscribe(now, to, subscribe)
            }
            Request::Unsubscribe { topic, group } => self.unsubscribe(now, to, topic, group),
            Request::Ack(ack) => self.ack(now, to, ack),
            Request::Nack(nack) => self.nack(now, to, nack),
            Request::GiveBack(given) => self.give_back(now, to, given),
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
            Request::PauseGroup { topic, group, paused } => self.pause_group(now, to, topic, group, paused),
            Request::InspectGroup { topic, group, open_max } => {
                self.inspect_group(now, to, topic, &group, open_max)
            }
            Request::RemoveLetters { topic, partition, offsets } => {
                self.remove_letters(now, to, topic, partition, offsets)
            }
            Request::EventStandings { topic, partition, offset } => {
                self.event_standings(to, topic, partition, offset)
            }
            Request::InspectConnections => {
                self.inspect_connections(to);
                Ok(())
            }
            Request::Stats => {
                let stats = Box::new(self.stats(now));
                self.reply(to, Reply::Stats(stats));
                Ok(())
            }
        };
        self.totals.end_request();
        if let Err(error) = result {
            self.refuse(to, error);
        }
    }

    pub(crate) fn reply(&mut self, to: ReplyTo, reply: Reply) {
        match to {
            ReplyTo::Nobody => {}
            ReplyTo::Conn { conn, .. } if !self.conns.is_open(conn) => {}
            _ => self.effects.push(Effect::Reply { to, reply }),
        }
    }

    pub(crate) fn refuse(&mut self, to: ReplyTo, error: BusError) {
        self.reply(to, Reply::Refused(error));
    }

    pub(crate) fn commit(
        &mut self,
        now: Now,
        durability: Durability,
        ops: Vec<Op>,
        pending: PendingEffect,
    ) -> Token {
        self.commit_if(now, durability, Vec::new(), ops, pending)
    }

    /// Commits published events. A request that may only be a duplicate (see [`DuplicateOnly`]) is committed only if
    /// each of its events that does not match the schema was stored before.
    pub(crate) fn commit_published(
        &mut self,
        now: Now,
        durability: Durability,
        duplicate_only: Option<DuplicateOnly>,
        ops: Vec<Op>,
        pending: PendingEffect,
    ) {
        match duplicate_only {
            None => self.commit(now, durability, ops, pending),
            Some(mut duplicate_only) => {
                let checks = std::mem::take(&mut duplicate_only.checks);
                let pending = PendingEffect::DuplicateOnly { duplicate_only, then: Box::new(pending) };
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
        pending: PendingEffect,
    ) -> Token {
        let token = self.pending.next_token();
        self.ages.note_commit();
        self.foreign.watch(token, &ops);
        let batch = Batch { nonce: self.pending.nonce(token), now: now.wall, durability, checks, ops };
        self.pending.insert(token, pending);
        self.effects.push(Effect::Commit { token, batch });
        token
    }

    /// Returns the topic, and creates it if it does not exist. The row that makes it durable is added to `ops`.
    pub(crate) fn topic_or_create(&mut self, key: &TopicKey, ops: &mut Vec<Op>) -> Result<TopicId, BusError> {
        if let Some(id) = self.topics.id(key) {
            return Ok(id);
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
        self.totals.topic_fits(&self.limits)?;
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
        let token = self.pending.next_token();
        let made_by = self.totals.requester().cloned();
        let row = TopicRow { config, incarnation: self.pending.nonce(token), made_by, ..TopicRow::default() };
        ops.push(Op::Put { space: Space::Topics, key: keys::topic(key), value: row.encode() });
        self.insert_topic(key.clone(), row)
    }

    pub(crate) fn insert_topic(&mut self, key: TopicKey, row: TopicRow) -> TopicId {
        let topic = Topic::new(key, row);
        self.totals.topic_made(topic.made_by.as_ref(), topic.logs.len() as u64);
        let id = self.topics.insert(topic);
        self.restore_schema(id);
        id
    }

    /// Registers when the cursor must be woken, if that is earlier than its registered time.
    pub(crate) fn wake_at(&mut self, at: CursorRef, when: Mono) {
        let Some(cursor) = self.groups.must_cursor_mut(at, &self.broken) else { return };
        if let Ok(before) = cursor.register_wake(when) {
            self.agenda.wake(at, when, before);
        }
    }
}

/// Whether the request is refused while the disk has too little room. Creating topics and groups, acks and removals are
/// not: they write little, and some of them free space.
fn adds(request: &Request) -> bool {
    match request {
        Request::Publish(_) | Request::PublishBatch(_) => true,
        // A `Record` without events only creates a topic of the server itself.
        Request::Record(batch) => !batch.events.is_empty(),
        _ => false,
    }
}
