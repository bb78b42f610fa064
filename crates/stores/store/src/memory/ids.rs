//! Ids that clients brought, so that an id is stored only once per topic.

use std::collections::{BTreeMap, VecDeque};

use millrace_model::{EventId, Offset, Partition, Timestamp, TopicKey};

/// The position at which an event was stored, and the time.
pub(super) type StoredAt = (Partition, Offset, Timestamp);

/// The position and time of the newest event of each remembered id, whether or not the event is still stored. The
/// caller judges whether the id is still within the dedupe window.
#[derive(Clone)]
pub(super) struct RecentIds {
    ids_max: usize,
    /// An entry per append, in order of arrival. Its number tells whether the entry in `newest` is of the same append.
    arrivals: VecDeque<(TopicKey, EventId, u64)>,
    newest: BTreeMap<TopicKey, BTreeMap<EventId, (StoredAt, u64)>>,
    arrived: u64,
}

impl RecentIds {
    pub(super) fn new(ids_max: usize) -> RecentIds {
        RecentIds { ids_max, arrivals: VecDeque::new(), newest: BTreeMap::new(), arrived: 0 }
    }

    pub(super) fn find(&self, topic: &TopicKey, id: &EventId) -> Option<StoredAt> {
        self.newest.get(topic)?.get(id).map(|(place, _)| *place)
    }

    pub(super) fn remember(&mut self, topic: &TopicKey, id: &EventId, place: StoredAt) {
        self.arrived += 1;
        let ids = self.newest.entry(topic.clone()).or_default();
        ids.insert(id.clone(), (place, self.arrived));
        self.arrivals.push_back((topic.clone(), id.clone(), self.arrived));
        while self.arrivals.len() > self.ids_max {
            let Some((topic, id, arrived)) = self.arrivals.pop_front() else { return };
            let Some(ids) = self.newest.get_mut(&topic) else { continue };
            if ids.get(&id).is_some_and(|found| found.1 == arrived) {
                ids.remove(&id);
            }
        }
    }

    pub(super) fn forget_topic(&mut self, topic: &TopicKey) {
        self.newest.remove(topic);
    }
}
