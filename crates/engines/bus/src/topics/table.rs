//! All topics, by number and by name, and the sums that are kept over them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use millrace_model::{Broken, TopicKey, never};

use crate::interface::reply::BusError;
use crate::topics::schema::TopicSchema;
use crate::topics::topic::{TailBytes, Topic, TopicId};

#[derive(Debug, Default)]
pub(crate) struct Topics {
    by_id: BTreeMap<TopicId, Topic>,
    /// The number of each topic in `by_id`.
    ids: BTreeMap<TopicKey, TopicId>,
    /// The number of the topic that was created last; no number is used again.
    created: u32,
    tail_bytes: TailBytes,
    /// How many topics have a schema, and the bytes of these schemas' documents.
    schemas: usize,
    schemas_bytes: usize,
}

impl Topics {
    /// Returns the topic, `None` if it was deleted: effects under way name their topic by number.
    pub(crate) fn get(&self, id: TopicId) -> Option<&Topic> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: TopicId) -> Option<&mut Topic> {
        self.by_id.get_mut(&id)
    }

    /// Returns a topic that the caller knows to exist.
    #[track_caller]
    pub(crate) fn must(&self, id: TopicId, broken: &Broken) -> Option<&Topic> {
        let topic = self.by_id.get(&id);
        if topic.is_none() {
            never!(broken, "there is no topic {id:?}");
        }
        topic
    }

    #[track_caller]
    pub(crate) fn must_mut(&mut self, id: TopicId, broken: &Broken) -> Option<&mut Topic> {
        let topic = self.by_id.get_mut(&id);
        if topic.is_none() {
            never!(broken, "there is no topic {id:?}");
        }
        topic
    }

    /// Returns a topic whose tails are to change, and the total that has to follow.
    pub(crate) fn with_tails(&mut self, id: TopicId) -> Option<(&mut Topic, &mut TailBytes)> {
        Some((self.by_id.get_mut(&id)?, &mut self.tail_bytes))
    }

    pub(crate) fn id(&self, key: &TopicKey) -> Option<TopicId> {
        self.ids.get(key).copied()
    }

    pub(crate) fn known(&self, key: &TopicKey) -> Result<TopicId, BusError> {
        self.id(key).ok_or_else(|| BusError::UnknownTopic(key.clone()))
    }

    /// Returns the table's own copy of the name: the copies of one name share their bytes.
    pub(crate) fn shared_key(&self, key: &TopicKey) -> Option<(TopicKey, TopicId)> {
        self.ids.get_key_value(key).map(|(key, id)| (key.clone(), *id))
    }

    pub(crate) fn contains(&self, key: &TopicKey) -> bool {
        self.ids.contains_key(key)
    }

    pub(crate) fn named(&self, key: &TopicKey) -> Option<&Topic> {
        self.get(self.id(key)?)
    }

    pub(crate) fn named_mut(&mut self, key: &TopicKey) -> Option<&mut Topic> {
        self.get_mut(self.id(key)?)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TopicId, &Topic)> {
        self.by_id.iter().map(|(id, topic)| (*id, topic))
    }

    /// Checks the index by name and the sums over all topics. Returns how many things were looked at.
    pub(crate) fn check(&self) -> usize {
        assert_eq!(self.by_id.len(), self.ids.len(), "every topic has one name");
        let (mut tail_bytes, mut schemas, mut schemas_bytes, mut things) = (0, 0, 0, self.by_id.len());
        for (id, topic) in &self.by_id {
            assert_eq!(self.ids.get(&topic.key), Some(id), "the number of {}", topic.key);
            for log in &topic.logs {
                let (bytes, events) = log.check(&topic.key);
                tail_bytes += bytes;
                things += 1 + events;
            }
            schemas += usize::from(topic.schema.is_some());
            schemas_bytes += topic.schema.as_ref().map_or(0, |schema| schema.bytes);
        }
        assert_eq!(self.tail_bytes.get(), tail_bytes, "bytes of tails");
        assert_eq!((self.schemas, self.schemas_bytes), (schemas, schemas_bytes), "schemas and their bytes");
        things
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Topic> {
        self.by_id.values()
    }

    pub(crate) fn from(&self, id: TopicId) -> impl Iterator<Item = (TopicId, &Topic)> {
        self.by_id.range(id..).map(|(id, topic)| (*id, topic))
    }

    /// In the order of their names.
    pub(crate) fn by_name(&self, after: Option<&TopicKey>) -> impl Iterator<Item = &Topic> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.ids.range::<TopicKey, _>((from, Bound::Unbounded)).filter_map(|(_, id)| self.by_id.get(id))
    }

    pub(crate) fn insert(&mut self, topic: Topic) -> TopicId {
        self.created += 1;
        let id = TopicId(self.created);
        self.ids.insert(topic.key.clone(), id);
        self.by_id.insert(id, topic);
        id
    }

    pub(crate) fn remove(&mut self, key: &TopicKey) -> Option<Topic> {
        let id = self.ids.remove(key)?;
        let mut topic = self.by_id.remove(&id)?;
        topic.drop_tails(&mut self.tail_bytes);
        Some(topic)
    }

    pub(crate) fn tail_bytes(&self) -> usize {
        self.tail_bytes.get()
    }

    pub(crate) fn schemas(&self) -> usize {
        self.schemas
    }

    pub(crate) fn schemas_bytes(&self) -> usize {
        self.schemas_bytes
    }

    /// Updates the totals of schemas when a topic's schema changes from `before` to `after`.
    pub(crate) fn account_schema(
        &mut self,
        before: Option<&Arc<TopicSchema>>,
        after: Option<&Arc<TopicSchema>>,
    ) {
        let bytes = |schema: Option<&Arc<TopicSchema>>| schema.map_or(0, |schema| schema.bytes);
        self.schemas = self.schemas + usize::from(after.is_some()) - usize::from(before.is_some());
        self.schemas_bytes = (self.schemas_bytes + bytes(after)).saturating_sub(bytes(before));
    }
}
