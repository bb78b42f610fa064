//! A topic and its logs, as far as the engine needs them to decide: bounds, and the newest events for groups at the
//! tail.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use millrace_model::{
    Actor, Durability, Event, EventBody, Group, Offset, Partition, TopicConfig, TopicKey, TopicRow,
    partition_of,
};

use crate::groups::group::GroupId;
use crate::interface::reply::{PartitionView, SchemaView, TopicView};
use crate::limits::BusLimits;
use crate::stats::TopicCounters;
use crate::topics::compaction::Compacted;
use crate::topics::retention::Lain;
use crate::topics::schema::{Compared, SchemaStamp, TopicSchema};
use crate::topics::schema_change::Candidate;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TopicId(pub(crate) u32);

#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) key: TopicKey,
    pub(crate) config: TopicConfig,
    /// A topic of the server itself: not counted as traffic, not audited.
    pub(crate) system: bool,
    /// See [`TopicRow::incarnation`].
    pub(crate) incarnation: u64,
    pub(crate) made_by: Option<Actor>,
    pub(crate) logs: Vec<Log>,
    pub(crate) groups: BTreeMap<Group, GroupId>,
    /// How many subscriptions there are; without any, the tail is not worth keeping.
    members: usize,
    pub(crate) counters: TopicCounters,
    /// The schema in force, compiled from the configuration.
    pub(crate) schema: Option<Arc<TopicSchema>>,
    /// See [`TopicRow::schema_version`] and [`TopicRow::schema_first`].
    pub(crate) schema_version: u32,
    pub(crate) schema_first: u32,
    /// The schema that a change would set, while retained events are compared with it.
    pub(crate) candidate: Option<Candidate>,
    /// The partition of the last event without a key; the next one goes to the partition after it.
    turn: u32,
}

#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) start: Offset,
    pub(crate) next: Offset,
    /// The newest events, without holes, ending at `next - 1`; or empty.
    tail: VecDeque<Arc<Event>>,
    tail_bytes: usize,
    pub(crate) compacted: Compacted,
    pub(crate) lain: Lain,
}

/// Bytes of the tails of all logs. Every change of a tail has to be given the total, so that it stays true.
#[derive(Debug, Default)]
pub(crate) struct TailBytes(usize);

impl TailBytes {
    pub(crate) fn get(&self) -> usize {
        self.0
    }
}

impl Topic {
    pub(crate) fn new(key: TopicKey, row: TopicRow) -> Topic {
        let TopicRow { config, incarnation, schema_version, schema_first, made_by } = row;
        let logs = (0..config.partitions.max(1)).map(|_| Log::new()).collect();
        Topic {
            system: key.is_system(),
            key,
            config,
            incarnation,
            made_by,
            logs,
            groups: BTreeMap::new(),
            members: 0,
            counters: TopicCounters::default(),
            schema: None,
            schema_version,
            schema_first,
            candidate: None,
            turn: 0,
        }
    }

    /// Selects the partition of an event: by its key, or in turn.
    pub(crate) fn partition_for(&mut self, body: &EventBody) -> Partition {
        let partitions = self.logs.len() as u32;
        match &body.key {
            Some(key) => partition_of(key, partitions),
            None => {
                self.turn = (self.turn + 1) % partitions;
                Partition(self.turn)
            }
        }
    }

    pub(crate) fn row(&self) -> TopicRow {
        TopicRow {
            config: self.config.clone(),
            incarnation: self.incarnation,
            schema_version: self.schema_version,
            schema_first: self.schema_first,
            made_by: self.made_by.clone(),
        }
    }

    pub(crate) fn schema_stamp(&self) -> SchemaStamp {
        SchemaStamp {
            incarnation: self.incarnation,
            version: self.schema_version,
            tombstones: self.config.compact,
        }
    }

    pub(crate) fn ack_timeout_ms(&self, limits: &BusLimits) -> u64 {
        self.config.ack_timeout_ms.unwrap_or(limits.ack_timeout_ms)
    }

    pub(crate) fn max_attempts(&self, limits: &BusLimits) -> u32 {
        self.config.max_attempts.unwrap_or(limits.max_attempts)
    }

    /// Whether events that the groups give up on become dead letters: those of a dead-letter topic do not.
    pub(crate) fn has_dead_letters(&self) -> bool {
        !self.key.is_dead_letter()
    }

    pub(crate) fn dedupe_window_ms(&self, limits: &BusLimits) -> u64 {
        self.config.dedupe_window_ms.unwrap_or(limits.dedupe_window_ms)
    }

    /// A topic may ask for less than the server gives, not for more.
    pub(crate) fn durability(&self, limits: &BusLimits) -> Durability {
        self.config.durability.map_or(limits.durability, |wish| wish.min(limits.durability))
    }

    pub(crate) fn drop_tails(&mut self, total: &mut TailBytes) {
        self.logs.iter_mut().for_each(|log| log.drop_tail(total));
    }

    pub(crate) fn members(&self) -> usize {
        self.members
    }

    pub(crate) fn member_joined(&mut self) {
        self.members += 1;
    }

    /// Without members the tails are dropped.
    pub(crate) fn member_left(&mut self, total: &mut TailBytes) {
        self.members = self.members.saturating_sub(1);
        if self.members == 0 {
            self.drop_tails(total);
        }
    }

    /// Whether fresh events are kept in memory: somebody has subscribed, and there is room.
    pub(crate) fn keeps_tail(&self, total: &TailBytes, limits: &BusLimits) -> bool {
        self.members > 0 && total.0 < limits.tail_bytes_total_max
    }

    pub(crate) fn bounds(&self) -> impl Iterator<Item = PartitionView> + '_ {
        self.logs.iter().zip(0..).map(|(log, partition)| PartitionView {
            partition: Partition(partition),
            start: log.start,
            next: log.next,
        })
    }

    pub(crate) fn view(&self) -> TopicView {
        TopicView {
            topic: self.key.clone(),
            config: self.config.clone(),
            partitions: self.bounds().collect(),
            groups: self.groups.keys().cloned().collect(),
            schema: (self.schema_version > 0).then(|| SchemaView {
                incarnation: self.incarnation,
                version: self.config.schema.as_ref().map(|_| self.schema_version),
                checked: Compared::default(),
            }),
        }
    }
}

impl Log {
    pub(crate) fn new() -> Log {
        Log {
            start: Offset::FIRST,
            next: Offset::FIRST,
            tail: VecDeque::new(),
            tail_bytes: 0,
            compacted: Compacted::default(),
            lain: Lain::default(),
        }
    }

    pub(crate) fn restore(start: Offset, next: Offset) -> Log {
        Log { start, next, ..Log::new() }
    }

    /// Takes a committed event. The tail never has a hole: where it would get one it starts anew. An event below
    /// `next`, which appends of others have already passed, does not belong to the tail.
    pub(crate) fn append(&mut self, event: Arc<Event>, keep: bool, total: &mut TailBytes) {
        let keep = keep && event.offset >= self.next;
        if !keep || event.offset != self.next {
            self.drop_tail(total);
        }
        self.next = self.next.max(event.offset.next());
        if keep {
            let bytes = event.body.bytes();
            self.tail_bytes += bytes;
            total.0 += bytes;
            self.tail.push_back(event);
        }
    }

    pub(crate) fn drop_tail(&mut self, total: &mut TailBytes) {
        self.tail.clear();
        total.0 -= self.tail_bytes;
        self.tail_bytes = 0;
    }

    /// Checks the log's bounds and its tail. Returns the bytes and the number of events of the tail.
    pub(crate) fn check(&self, topic: &TopicKey) -> (usize, usize) {
        assert!(Offset::FIRST <= self.start && self.start <= self.next, "bounds of a log of {topic}");
        let bytes = self.tail.iter().map(|event| event.body.bytes()).sum();
        assert_eq!(self.tail_bytes, bytes, "bytes of a tail of {topic}");
        let first = self.next.0 - self.tail.len() as u64;
        for (event, offset) in self.tail.iter().zip(first..) {
            assert_eq!(event.offset.0, offset, "a tail of {topic} has no holes and ends at the newest event");
        }
        (bytes, self.tail.len())
    }

    /// The first offset of the tail.
    pub(crate) fn tail_start(&self) -> Option<u64> {
        self.tail.front().map(|event| event.offset.0)
    }

    /// Drops events that no group at the tail still needs, and the oldest beyond the bounds.
    pub(crate) fn trim_tail(&mut self, needed_from: Offset, limits: &BusLimits, total: &mut TailBytes) {
        while let Some(first) = self.tail.front() {
            let over = self.tail.len() > limits.tail_events_max || self.tail_bytes > limits.tail_bytes_max;
            if first.offset >= needed_from && !over {
                break;
            }
            let bytes = first.body.bytes();
            self.tail_bytes -= bytes;
            total.0 -= bytes;
            self.tail.pop_front();
        }
    }

    /// Returns the events from `offset` on, if the tail reaches back that far.
    pub(crate) fn tail_from(&self, offset: Offset) -> Option<impl Iterator<Item = &Arc<Event>>> {
        let first = self.tail.front()?.offset;
        let index = usize::try_from(offset.0.checked_sub(first.0)?).ok()?;
        self.tail.get(index).filter(|event| event.offset == offset)?;
        Some(self.tail.range(index..))
    }
}
