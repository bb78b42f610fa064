//! Names for positions: a group on a topic, its cursor in one partition, and how both are read out of row keys.

use std::fmt;

use millrace_model::{Group, Offset, Partition, Stream, TopicKey};

/// A group on a topic, which is what a connection subscribes to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seat {
    pub topic: TopicKey,
    pub group: Group,
}

/// A group in one partition, which is what a cursor row is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub seat: Seat,
    pub partition: Partition,
}

impl Seat {
    pub(crate) fn spot(&self, partition: Partition) -> Spot {
        Spot { seat: self.clone(), partition }
    }

    /// Parses `namespace/topic/group`.
    pub(crate) fn parse(key: &str) -> Option<Seat> {
        let (topic, group) = key.rsplit_once('/')?;
        Some(Seat { topic: TopicKey::parse(topic).ok()?, group: Group::new(group).ok()? })
    }
}

impl Spot {
    pub(crate) fn stream(&self) -> Stream {
        self.seat.topic.stream(self.partition)
    }

    /// Parses `namespace/topic/group/partition`.
    pub(crate) fn parse(key: &str) -> Option<Spot> {
        let (seat, partition) = key.rsplit_once('/')?;
        Some(Seat::parse(seat)?.spot(Partition(partition.parse().ok()?)))
    }

    /// Parses `namespace/topic/group/partition/offset`.
    pub(crate) fn parse_attempt(key: &str) -> Option<(Spot, Offset)> {
        let (spot, offset) = key.rsplit_once('/')?;
        Some((Spot::parse(spot)?, Offset(u64::from_str_radix(offset, 16).ok()?)))
    }
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic.topic(), self.group)
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.seat, self.partition)
    }
}
