//! Counters and gauges of the engine.

use std::collections::BTreeMap;
use std::ops::{AddAssign, SubAssign};

use millrace_model::{Group, Offset, Partition, TopicKey};

use crate::delivery::dead_letter::{DISCONNECTED, TIMED_OUT};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events appended to topics of users, without the server's own topics.
    pub published: u64,
    /// Events the server wrote to its own topics.
    pub system: u64,
    pub duplicates: u64,
    pub delivered: u64,
    pub acked: u64,
    pub nacked: u64,
    pub redelivered: u64,
    pub timed_out: u64,
    /// Deliveries that were no attempt: their connection was lost while it worked on another event, or left its group.
    pub given_back: u64,
    pub dead_lettered: DeadLetterCounts,
    /// Events a group never saw because retention removed them first.
    pub skipped: u64,
    /// Delayed events that could not be read when they were due and were set aside.
    pub quarantined: u64,
    /// Events a group's filter turned away.
    pub filtered: u64,
    /// States of the engine that cannot occur but did: see [`Bus::never_count`](crate::Bus::never_count).
    pub never: u64,
}

/// Events given up on, by how their last delivery ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterCounts {
    pub refused: u64,
    pub timed_out: u64,
    pub disconnected: u64,
}

impl DeadLetterCounts {
    pub fn total(&self) -> u64 {
        self.refused + self.timed_out + self.disconnected
    }

    /// Counts by the stored text, which is all that a restart leaves of a delivery. A consumer that refuses with one of
    /// the engine's own texts is counted there.
    pub(crate) fn add(&mut self, reason: Option<&str>) {
        match reason {
            None | Some(TIMED_OUT) => self.timed_out += 1,
            Some(DISCONNECTED) => self.disconnected += 1,
            Some(_) => self.refused += 1,
        }
    }
}

impl AddAssign for DeadLetterCounts {
    fn add_assign(&mut self, more: DeadLetterCounts) {
        self.refused += more.refused;
        self.timed_out += more.timed_out;
        self.disconnected += more.disconnected;
    }
}

impl SubAssign for DeadLetterCounts {
    fn sub_assign(&mut self, less: DeadLetterCounts) {
        self.refused = self.refused.saturating_sub(less.refused);
        self.timed_out = self.timed_out.saturating_sub(less.timed_out);
        self.disconnected = self.disconnected.saturating_sub(less.disconnected);
    }
}

/// How many deliveries were acknowledged after how long: a histogram in whole milliseconds, the engine's unit of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AckTimes {
    /// For each bound the deliveries up to it and above the one before; at last those above all bounds.
    pub counts: [u64; AckTimes::BOUNDS_MS.len() + 1],
    pub sum_ms: u64,
}

impl AckTimes {
    pub const BOUNDS_MS: &[u64] =
        &[1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000];

    pub(crate) fn add(&mut self, took_ms: u64) {
        let bucket = AckTimes::BOUNDS_MS.partition_point(|bound| *bound < took_ms);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum_ms = self.sum_ms.saturating_add(took_ms);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicCounters {
    pub published: u64,
    pub delivered: u64,
}

/// Gauges of a group on a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupGauges {
    pub topic: TopicKey,
    pub group: Group,
    pub inflight: u64,
    /// How long the oldest delivery under way has lasted; 0 without one.
    pub oldest_inflight_ms: u64,
    pub lag: u64,
    pub paused: bool,
    /// The first event that is not done, in each partition with a lag.
    pub behind: Vec<(Partition, Offset)>,
}

/// A snapshot: counters since start, gauges as of now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub counters: Counters,
    /// From a delivery to the ack that ended it.
    pub ack_times: AckTimes,
    /// How many topics have an access list.
    pub topics_with_access: u64,
    pub by_topic: BTreeMap<TopicKey, TopicCounters>,
    /// The letters in each topic of dead letters of users.
    pub dead_letters: BTreeMap<TopicKey, u64>,
    /// In the order of topics, then of groups.
    pub by_group: Vec<GroupGauges>,
    pub connections: u64,
    pub topics: u64,
    pub groups: u64,
    pub subscriptions: u64,
    pub inflight: u64,
    pub lag: u64,
    /// Bytes of fresh events kept in memory, and of events read ahead for groups.
    pub tail_bytes: u64,
    pub fetched_bytes: u64,
    pub delayed: bool,
    pub commits_pending: u64,
    pub storage_failed: Option<String>,
    pub stopping: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letters_are_counted_by_the_end_of_their_last_delivery() {
        let mut counts = DeadLetterCounts::default();
        for reason in [None, Some(TIMED_OUT), Some(DISCONNECTED), Some("the address is unknown")] {
            counts.add(reason);
        }
        assert_eq!(counts, DeadLetterCounts { refused: 1, timed_out: 2, disconnected: 1 });
        assert_eq!(counts.total(), 4);
        counts -= DeadLetterCounts { refused: 5, ..DeadLetterCounts::default() };
        assert_eq!(counts.refused, 0, "a counter does not wrap");
    }

    #[test]
    fn a_time_is_counted_below_the_bound_that_it_does_not_exceed() {
        let mut times = AckTimes::default();
        for took_ms in [0, 1, 2, 300_000, 300_001] {
            times.add(took_ms);
        }
        let [first, second, .., last_bounded, above] = times.counts;
        assert_eq!((first, second, last_bounded, above), (2, 1, 1, 1));
        assert_eq!(times.sum_ms, 600_004);
    }
}
