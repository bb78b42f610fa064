//! Ids that clients brought, so that the same one on the same topic is stored once.

use std::collections::{BTreeMap, VecDeque};

use millrace_model::{EventId, Offset, Partition, Timestamp, TopicKey};

/// Where an event was stored, and when.
pub(super) type Place = (Partition, Offset, Timestamp);

/// Where and when the newest event of each remembered id was stored, whether it is still there or not. Judging whether it
/// still counts is the caller's.
#[derive(Clone)]
pub(super) struct Ids {
    ids_max: usize,
    /// One entry per append, in order of arrival, with the number that says which entry of the map it stands for.
    arrivals: VecDeque<(TopicKey, EventId, u64)>,
    newest: BTreeMap<TopicKey, BTreeMap<EventId, (Place, u64)>>,
    arrived: u64,
}

impl Ids {
    pub(super) fn new(ids_max: usize) -> Ids {
        Ids { ids_max, arrivals: VecDeque::new(), newest: BTreeMap::new(), arrived: 0 }
    }

    pub(super) fn find(&self, topic: &TopicKey, id: &EventId) -> Option<Place> {
        self.newest.get(topic)?.get(id).map(|(place, _)| *place)
    }

    pub(super) fn remember(&mut self, topic: &TopicKey, id: &EventId, place: Place) {
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
