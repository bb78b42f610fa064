//! The place of an event: namespace, topic, partition, offset.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::topics::name::{DLQ_SUFFIX, NameError, Namespace, TopicName};

/// Position of an event in its stream. The first event is 1; 0 means «nothing yet».
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub u64);

impl Offset {
    pub const ZERO: Offset = Offset(0);
    pub const FIRST: Offset = Offset(1);

    /// The offset behind this one. The last one of all stays: no store hands it out, but a request may name it.
    pub fn next(self) -> Offset {
        Offset(self.0.saturating_add(1))
    }

    /// The offset before this one; 0 stays 0.
    pub fn before(self) -> Offset {
        Offset(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Partition(pub u32);

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A topic inside its namespace, held as one shared text `namespace/topic` (neither name can contain a slash), so that
/// a clone only increments a counter and a comparison is one string comparison.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicKey(Arc<str>);

impl TopicKey {
    pub fn new(namespace: &Namespace, topic: &TopicName) -> TopicKey {
        TopicKey(format!("{namespace}/{topic}").into())
    }

    /// The inverse of [`TopicKey::as_str`].
    pub fn parse(text: &str) -> Result<TopicKey, NameError> {
        let (namespace, topic) = text.split_once('/').unwrap_or(("", text));
        Ok(TopicKey::new(&Namespace::new(namespace)?, &TopicName::new(topic)?))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub fn topic(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, topic)| topic)
    }

    pub fn is_dead_letter(&self) -> bool {
        self.0.ends_with(DLQ_SUFFIX)
    }

    /// Returns the topic whose dead letters this topic holds.
    pub fn dead_letters_of(&self) -> Option<TopicKey> {
        self.0.strip_suffix(DLQ_SUFFIX).and_then(|topic| TopicKey::parse(topic).ok())
    }

    /// Returns the topic that holds this topic's dead letters; `None` for dead-letter topics.
    pub fn dead_letters(&self) -> Option<TopicKey> {
        (!self.is_dead_letter()).then(|| TopicKey(format!("{}{DLQ_SUFFIX}", self.0).into()))
    }

    pub fn stream(&self, partition: Partition) -> Stream {
        Stream { topic: self.clone(), partition }
    }
}

impl fmt::Display for TopicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An ordered log: a partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    pub topic: TopicKey,
    pub partition: Partition,
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}
