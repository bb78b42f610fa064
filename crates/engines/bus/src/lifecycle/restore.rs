//! Restoring the engine from the store at the start: from the small tables and the bounds of every stream.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{
    AgesRow, AttemptRow, Boot, CursorRow, DueBy, Elapsed, ElapsedRow, Group, GroupRow, Now, Offset, RowError,
    Stream, Timestamp, TopicKey, TopicRow, keys,
};

use crate::bus::Bus;
use crate::groups::cursor::Cursor;
use crate::groups::group::GroupState;
use crate::limits::BusLimits;
use crate::topics::topic::Log;

/// Rows as they stand in the store. The engine reads them with the types of [`millrace_model`].
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub topics: Vec<(String, Bytes)>,
    pub groups: Vec<(String, Bytes)>,
    pub cursors: Vec<(String, Bytes)>,
    pub attempts: Vec<(String, Bytes)>,
    /// When the first delayed event of each kind is due, if there is one.
    pub first_due: Vec<(DueBy, Timestamp)>,
    /// The row at [`millrace_model::keys::ELAPSED`], if there is one.
    pub elapsed: Option<Bytes>,
    /// The row at [`millrace_model::keys::AGES`], if there is one.
    pub ages: Option<Bytes>,
    /// The current run of the machine (its boot), if the system can tell.
    pub boot: Option<Boot>,
    /// Drawn at random by the shell at every start: nonces and ids of delayed events derive from it.
    pub seed: u64,
    /// The newest time of all events of users that were ever appended, if there is one. The server's own topics do not
    /// count: a server that starts with a wrong clock writes to them at once.
    pub newest: Option<Timestamp>,
    /// Every stream with the first offset that is retained and the offset of its next event.
    pub streams: Vec<(Stream, Offset, Offset)>,
}

/// AttemptRows by the key of their cursor.
type AttemptRows = BTreeMap<String, BTreeMap<u64, AttemptRow>>;

impl Bus {
    pub fn restore(limits: BusLimits, snapshot: Snapshot, now: Now) -> Result<Bus, RowError> {
        let mut bus = Bus::empty(limits, snapshot.seed);
        bus.ages.tell(now);
        let ages = snapshot.ages.map(|row| AgesRow::decode(keys::AGES, &row)).transpose()?;
        bus.restore_ages(ages, snapshot.newest, snapshot.boot, now);
        let elapsed = snapshot.elapsed.map(|row| ElapsedRow::decode(keys::ELAPSED, &row)).transpose()?;
        bus.elapsed = Elapsed::restore(elapsed, snapshot.boot, now);
        for (key, value) in &snapshot.topics {
            let row = TopicRow::decode(key, value)?;
            if let Ok(topic) = TopicKey::parse(key) {
                let id = bus.insert_topic(topic, row);
                bus.note_upkeep(now, id);
            }
        }
        for (stream, start, next) in snapshot.streams {
            let topic = bus.topics.named_mut(&stream.topic);
            let age_ms = topic.as_ref().and_then(|topic| topic.config.retention_ms);
            if let Some(log) = topic.and_then(|topic| topic.logs.get_mut(stream.partition.0 as usize)) {
                *log = Log::restore(start, next);
                if let Some(age_ms) = age_ms {
                    log.ages.note(now.mono, next, age_ms);
                }
            }
        }
        let mut attempts = AttemptRows::new();
        for (key, value) in &snapshot.attempts {
            let row = AttemptRow::decode(key, value)?;
            // A key that cannot be parsed is reported by `inspect.rs`.
            let Some((cursor, offset)) = key.rsplit_once('/') else {
                continue;
            };
            let Ok(offset) = u64::from_str_radix(offset, 16) else {
                continue;
            };
            attempts.entry(cursor.to_owned()).or_default().insert(offset, row);
        }
        let mut cursors: BTreeMap<&str, CursorRow> = BTreeMap::new();
        for (key, value) in &snapshot.cursors {
            cursors.insert(key, CursorRow::decode(key, value)?);
        }
        for (key, value) in &snapshot.groups {
            bus.restore_group(key, GroupRow::decode(key, value)?, &mut cursors, &mut attempts);
        }
        for (by, at) in snapshot.first_due {
            bus.due.note_delayed();
            bus.expect_due(now, by, at);
        }
        Ok(bus)
    }

    /// Restores a group. A group whose position never became durable is left out: no subscriber was promised it.
    fn restore_group(
        &mut self,
        key: &str,
        row: GroupRow,
        cursors: &mut BTreeMap<&str, CursorRow>,
        attempts: &mut AttemptRows,
    ) {
        // A key that cannot be parsed, or names no topic, is reported by `inspect.rs`.
        let Some((topic, name)) = key.rsplit_once('/') else { return };
        let Ok(name) = Group::new(name) else { return };
        let Some((topic_key, id)) = TopicKey::parse(topic).ok().and_then(|key| self.topics.shared_key(&key))
        else {
            return;
        };
        let Some(topic) = self.topics.must_mut(id, &self.broken) else { return };
        let mut group = GroupState::new(id, topic_key, name.clone(), row.filter, row.created);
        group.made_by = row.made_by;
        group.paused = row.paused;
        let mut found = false;
        for (log, partition) in topic.logs.iter().zip(0..) {
            let key = keys::cursor(&group.stream(partition), &name);
            let cursor = match cursors.remove(key.as_str()) {
                Some(row) => {
                    found = true;
                    Cursor::restore(row, attempts.remove(&key).unwrap_or_default())
                }
                None => Cursor::at(log.start),
            };
            group.cursors.push(cursor);
        }
        if !found {
            return;
        }
        group.has_position = true;
        self.totals.cursors_made(group.made_by.as_ref(), group.cursors.len() as u64);
        topic.groups.insert(name, self.groups.insert(group));
    }
}
