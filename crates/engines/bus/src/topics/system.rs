//! The server's own topics: made with a bound on what they keep.

use millrace_model::{Now, Op, TopicConfig, TopicKey};

use crate::bus::Bus;
use crate::interface::input::PublishBatch;
use crate::interface::reply::{BusError, ReplyTo};
use crate::lifecycle::pending::Pending;
use crate::topics::schema::Compared;
use crate::topics::topic::TopicId;

impl Bus {
    /// Appends events of the server itself; without events, makes sure that the topic exists. The limits on topics do
    /// not apply, because the server has only a few topics of its own.
    pub(crate) fn record(&mut self, now: Now, to: ReplyTo, batch: PublishBatch) -> Result<(), BusError> {
        let PublishBatch { topic, events } = batch;
        let mut ops = Vec::with_capacity(events.len() + 1);
        self.system_topic(now, &topic, &mut ops);
        if !events.is_empty() {
            return self.append_after(now, to, topic, events, ops);
        }
        if ops.is_empty() {
            return self.describe_topic(to, topic);
        }
        let pending = Pending::TopicWrite { to, topic, created: true, checked: Compared::default() };
        self.commit(now, self.limits.durability, ops, pending);
        Ok(())
    }

    /// Returns the topic, and creates it if it does not exist: somebody may have deleted it. Its settings are given
    /// only here, because its owner may change them later.
    pub(crate) fn system_topic(&mut self, now: Now, key: &TopicKey, ops: &mut Vec<Op>) -> TopicId {
        if let Some(id) = self.topics.id(key) {
            return id;
        }
        let id = self.make_topic_unbounded(key, self.system_config(), ops);
        self.note_upkeep(now, id);
        id
    }

    pub(crate) fn system_config(&self) -> TopicConfig {
        let bound = |limit| (limit > 0).then_some(limit);
        TopicConfig {
            partitions: 1,
            retention_ms: bound(self.limits.system_retention_ms),
            retention_bytes: bound(self.limits.system_retention_bytes),
            ..TopicConfig::default()
        }
    }
}
