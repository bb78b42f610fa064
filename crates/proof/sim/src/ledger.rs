//! The sum of all commits: the simulator's own fold of every durable batch, kept apart from the store it is compared
//! with.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_model::{
    AttemptRow, Batch, CursorRow, Event, EventId, GroupRow, Offset, Op, Outcome, Partition, Space, Stream,
    Timestamp, TopicConfig, TopicKey, TopicRow,
};

use crate::place::{Seat, Spot};

#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub start: Offset,
    pub next: Offset,
    pub last_ts: Timestamp,
    /// Includes trimmed events: their deliveries may still be on their way.
    pub events: BTreeMap<Offset, Arc<Event>>,
}

impl Default for Log {
    fn default() -> Self {
        Log { start: Offset::FIRST, next: Offset::FIRST, last_ts: Timestamp(0), events: BTreeMap::new() }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub topics: BTreeMap<TopicKey, TopicConfig>,
    pub groups: BTreeMap<Seat, GroupRow>,
    pub cursors: BTreeMap<Spot, CursorRow>,
    pub tries: BTreeMap<(Spot, Offset), AttemptRow>,
    pub due: BTreeMap<String, bytes::Bytes>,
    pub kv: BTreeMap<String, bytes::Bytes>,
    pub logs: BTreeMap<Stream, Log>,
    pub ids: BTreeMap<(TopicKey, EventId), (Partition, Offset)>,
}

impl Ledger {
    pub(crate) fn apply(&mut self, batch: &Batch, outcome: &Outcome) {
        let Outcome::Done(done) = outcome else { return };
        let mut appended = done.appended.iter();
        for op in &batch.ops {
            match op {
                Op::Append(append) => {
                    let Some(done) = appended.next().filter(|done| !done.duplicate) else { continue };
                    let event = Event {
                        stream: append.stream.clone(),
                        offset: done.offset,
                        ts: done.ts,
                        id: done.id.clone(),
                        body: Arc::clone(&append.event.body),
                    };
                    if append.event.id.is_some() {
                        let place = (append.stream.partition, done.offset);
                        self.ids.insert((append.stream.topic.clone(), done.id.clone()), place);
                    }
                    let log = self.logs.entry(append.stream.clone()).or_default();
                    log.next = done.offset.next();
                    log.last_ts = done.ts;
                    log.events.insert(done.offset, Arc::new(event));
                }
                Op::Delay(delay) => {
                    if appended.next().is_some_and(|done| !done.duplicate) {
                        self.put(Space::Due, &delay.key, &delay.row.encode());
                    }
                }
                Op::Put { space, key, value } => self.put(*space, key, value),
                Op::Delete { space, key } => self.delete(*space, key),
                // Operations of durable handlers: the bus uses none of them.
                Op::PutNew { .. } | Op::Claim(_) | Op::Reconcile(_) => {}
                Op::Trim { stream, start } => {
                    let log = self.logs.entry(stream.clone()).or_default();
                    log.start = log.start.max(*start).min(log.next);
                }
                Op::Remove { stream, offsets, .. } => {
                    let log = self.logs.entry(stream.clone()).or_default();
                    log.events.retain(|offset, _| !offsets.contains(offset));
                }
                Op::Drop { topic } => {
                    self.logs.retain(|stream, _| stream.topic != *topic);
                    self.ids.retain(|(of, _), _| of != topic);
                }
            }
        }
    }

    fn put(&mut self, space: Space, key: &str, value: &bytes::Bytes) {
        match space {
            Space::Topics => {
                if let (Ok(topic), Ok(row)) =
                    (TopicKey::parse(key), TopicRow::decode(key, value).map(|row| row.config))
                {
                    self.topics.insert(topic, row);
                }
            }
            Space::Groups => {
                if let (Some(seat), Ok(row)) = (Seat::parse(key), GroupRow::decode(key, value)) {
                    self.groups.insert(seat, row);
                }
            }
            Space::Cursors => {
                if let (Some(spot), Ok(row)) = (Spot::parse(key), CursorRow::decode(key, value)) {
                    self.cursors.insert(spot, row);
                }
            }
            Space::Attempts => {
                if let (Some(place), Ok(row)) = (Spot::parse_attempt(key), AttemptRow::decode(key, value)) {
                    self.tries.insert(place, row);
                }
            }
            Space::Due => {
                self.due.insert(key.to_owned(), value.clone());
            }
            Space::Kv => {
                self.kv.insert(key.to_owned(), value.clone());
            }
            // The bus does not use the other spaces.
            _ => {}
        }
    }

    fn delete(&mut self, space: Space, key: &str) {
        match space {
            Space::Topics => self.topics.retain(|topic, _| topic.as_str() != key),
            Space::Groups => {
                Seat::parse(key).map(|seat| self.groups.remove(&seat));
            }
            Space::Cursors => {
                Spot::parse(key).map(|spot| self.cursors.remove(&spot));
            }
            Space::Attempts => {
                Spot::parse_attempt(key).map(|place| self.tries.remove(&place));
            }
            Space::Due => {
                self.due.remove(key);
            }
            Space::Kv => {
                self.kv.remove(key);
            }
            // The bus does not use the other spaces.
            _ => {}
        }
    }

    pub(crate) fn event(&self, stream: &Stream, offset: Offset) -> Option<&Arc<Event>> {
        self.logs.get(stream)?.events.get(&offset)
    }

    pub(crate) fn cursor(&self, spot: &Spot) -> CursorRow {
        self.cursors.get(spot).cloned().unwrap_or_default()
    }

    pub(crate) fn bounds(&self, stream: &Stream) -> (Offset, Offset) {
        self.logs.get(stream).map_or((Offset::FIRST, Offset::FIRST), |log| (log.start, log.next))
    }

    /// How many attempts at the event a server that starts now would know of.
    pub(crate) fn durable_attempts(&self, spot: &Spot, offset: Offset) -> u32 {
        self.tries.get(&(spot.clone(), offset)).map_or(0, |row| row.attempts)
    }
}

pub(crate) fn cursor_rows(batch: &Batch) -> impl Iterator<Item = (Spot, CursorRow)> + '_ {
    batch.ops.iter().filter_map(|op| match op {
        Op::Put { space: Space::Cursors, key, value } => {
            Some((Spot::parse(key)?, CursorRow::decode(key, value).ok()?))
        }
        _ => None,
    })
}

pub(crate) fn dropped(batch: &Batch) -> impl Iterator<Item = &TopicKey> {
    batch.ops.iter().filter_map(|op| match op {
        Op::Drop { topic } => Some(topic),
        _ => None,
    })
}

pub(crate) fn group_rows(batch: &Batch) -> impl Iterator<Item = (Seat, GroupRow)> + '_ {
    batch.ops.iter().filter_map(|op| match op {
        Op::Put { space: Space::Groups, key, value } => {
            Some((Seat::parse(key)?, GroupRow::decode(key, value).ok()?))
        }
        _ => None,
    })
}

/// Whether a cursor row counts the offset as done.
pub(crate) fn is_done(row: &CursorRow, offset: Offset) -> bool {
    offset <= row.committed || row.ahead.iter().any(|bit| row.committed.0 + 1 + bit == offset.0)
}
