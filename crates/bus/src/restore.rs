//! Starting from what the store holds: the small tables and the bounds of every stream.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{
    CursorRow, Group, GroupRow, Now, Offset, RowError, Stream, Timestamp, TopicKey, TopicRow, TryRow,
};

use crate::bus::Bus;
use crate::cursor::Cursor;
use crate::group::{GroupId, GroupState};
use crate::limits::BusLimits;
use crate::topic::Log;

/// Rows as they stand in the store. The engine reads them with the types of [`millrace_model`].
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub topics: Vec<(String, Bytes)>,
    pub groups: Vec<(String, Bytes)>,
    pub cursors: Vec<(String, Bytes)>,
    pub tries: Vec<(String, Bytes)>,
    /// When the first delayed event is due, if there is one.
    pub first_due: Option<Timestamp>,
    /// Drawn at random by the runtime at every start: nonces and ids of delayed events derive from it.
    pub seed: u64,
    /// Stream, start, next.
    pub streams: Vec<(Stream, Offset, Offset)>,
}

/// Tries by the key of their cursor.
type Tries = BTreeMap<String, BTreeMap<u64, TryRow>>;

impl Bus {
    pub fn restore(limits: BusLimits, snapshot: Snapshot, now: Now) -> Result<Bus, RowError> {
        let mut bus = Bus::empty(limits, snapshot.seed);
        for (key, value) in &snapshot.topics {
            let row = TopicRow::decode(key, value)?;
            if let Ok(topic) = TopicKey::parse(key) {
                let id = bus.insert_topic(topic, row);
                bus.note_upkeep(now, id);
            }
        }
        for (stream, start, next) in snapshot.streams {
            let topic = bus.topic_ids.get(&stream.topic).and_then(|id| bus.topics.get_mut(id));
            if let Some(log) = topic.and_then(|topic| topic.logs.get_mut(stream.partition.0 as usize)) {
                *log = Log { start, next, ..Log::new() };
            }
        }
        let mut tries = Tries::new();
        for (key, value) in &snapshot.tries {
            let row = TryRow::decode(key, value)?;
            let Some((cursor, offset)) = key.rsplit_once('/') else {
                continue;
            };
            let Ok(offset) = u64::from_str_radix(offset, 16) else {
                continue;
            };
            tries.entry(cursor.to_owned()).or_default().insert(offset, row);
        }
        let mut cursors: BTreeMap<&str, CursorRow> = BTreeMap::new();
        for (key, value) in &snapshot.cursors {
            cursors.insert(key, CursorRow::decode(key, value)?);
        }
        for (key, value) in &snapshot.groups {
            bus.restore_group(key, GroupRow::decode(key, value)?, &mut cursors, &mut tries);
        }
        if let Some(at) = snapshot.first_due {
            bus.due.any = true;
            bus.expect_due(now, at);
        }
        Ok(bus)
    }

    /// A group whose position never became durable was never promised to anybody: it is left out.
    fn restore_group(
        &mut self,
        key: &str,
        row: GroupRow,
        cursors: &mut BTreeMap<&str, CursorRow>,
        tries: &mut Tries,
    ) {
        let Some((topic, name)) = key.rsplit_once('/') else {
            return;
        };
        let Ok(name) = Group::new(name) else { return };
        let Some((topic_key, id)) =
            TopicKey::parse(topic).ok().and_then(|key| self.topic_ids.get_key_value(&key))
        else {
            return;
        };
        let (topic_key, id) = (topic_key.clone(), *id);
        let Some(topic) = self.topics.get_mut(&id) else {
            return;
        };
        let mut group = GroupState::new(id, topic_key, name.clone(), row.filter, row.created);
        let mut found = false;
        for (log, partition) in topic.logs.iter().zip(0..) {
            let key = millrace_model::keys::cursor(&group.stream(partition), &name);
            let cursor = match cursors.remove(key.as_str()) {
                Some(row) => {
                    found = true;
                    Cursor::restore(row, tries.remove(&key).unwrap_or_default())
                }
                None => Cursor::at(log.start),
            };
            group.cursors.push(cursor);
        }
        if !found {
            return;
        }
        group.placed = true;
        self.groups_made += 1;
        let id = GroupId(self.groups_made);
        topic.groups.insert(name, id);
        self.groups.insert(id, group);
    }
}
