//! Writing cursors down: one row per group and partition however many acks it stands for, together with the dead
//! letters that the group gave up on.

use std::sync::Arc;

use millrace_model::{
    EventBody, Headers, JsonText, Lineage, NewEvent, Now, Offset, Op, Space, TRACEPARENT, TopicConfig, keys,
};

use crate::bus::Bus;
use crate::cursor::Open;
use crate::group::CursorRef;
use crate::pending::{Appending, Pending};
use crate::sabotage::Sabotage;

/// Bytes of dead letters in one batch; one event always fits.
const BURY_BYTES_MAX: usize = 4 << 20;
/// Rows of tries in one batch. With reasons of the largest size, escaped in the worst way, they fill 4 MiB.
pub(crate) const TRIES_PER_BATCH_MAX: usize = 512;

impl Bus {
    /// A cursor has at most one flush under way: acks that arrive meanwhile share the next one.
    pub(crate) fn flush_all(&mut self, now: Now) {
        let waiting = std::mem::take(&mut self.to_flush);
        for at in waiting {
            match self.cursor_mut(at) {
                Some(cursor) if cursor.flushing.is_some() => {
                    self.to_flush.insert(at);
                }
                Some(_) => self.flush(now, at),
                None => {}
            }
        }
    }

    fn flush(&mut self, now: Now, at: CursorRef) {
        let apart = self.sabotaged(Sabotage::DeadLetterApart);
        let mut ops = Vec::new();
        let mut appends = Vec::new();
        let more = self.bury(now, at, &mut ops, &mut appends);
        let Some(group) = self.groups.get_mut(&at.group) else {
            return;
        };
        let Some(topic) = self.topics.get(&group.topic) else {
            return;
        };
        let durability = topic.durability(&self.limits);
        let (stream, name) = (group.stream(at.partition), group.name.clone());
        let Some(cursor) = group.cursors.get_mut(at.partition as usize) else {
            return;
        };
        cursor.flush_at = None;
        let row = cursor.row();
        let changed = cursor.note_flushed(&row) || cursor.has_try_changes();
        if !changed && cursor.confirms.is_empty() && ops.is_empty() {
            cursor.flush_now = false;
            return;
        }
        let buried = std::mem::take(&mut ops);
        for (offset, row) in cursor.take_try_changes(TRIES_PER_BATCH_MAX) {
            let key = keys::attempt(&stream, &name, Offset(offset));
            ops.push(match row {
                Some(row) => Op::Put { space: Space::Tries, key, value: row.encode() },
                None => Op::Delete { space: Space::Tries, key },
            });
        }
        ops.push(Op::Put { space: Space::Cursors, key: keys::cursor(&stream, &name), value: row.encode() });
        let more = more || cursor.has_try_changes();
        cursor.flush_now = more;
        let confirms = std::mem::take(&mut cursor.confirms);
        if apart && !buried.is_empty() {
            let pending =
                Pending::Flush { cursor: at, committed: row.committed, confirms, appends: Vec::new() };
            let token = self.commit(now, durability, ops, pending);
            self.commit(now, durability, buried, Pending::MoveDue { appends });
            if let Some(cursor) = self.cursor_mut(at) {
                cursor.flushing = Some(token);
            }
            return;
        }
        ops.extend(buried);
        let pending = Pending::Flush { cursor: at, committed: row.committed, confirms, appends };
        let token = self.commit(now, durability, ops, pending);
        if let Some(cursor) = self.cursor_mut(at) {
            cursor.flushing = Some(token);
        }
        if more {
            self.to_flush.insert(at);
        }
    }

    /// Turns events that have used up their attempts into appends to the dead-letter topic. From here on they count
    /// as done: the row that says so and the copies are one batch. True if there are more than fit.
    fn bury(&mut self, now: Now, at: CursorRef, ops: &mut Vec<Op>, appends: &mut Vec<Appending>) -> bool {
        let mut bytes = 0;
        loop {
            let Some(cursor) = self.cursor_mut(at) else {
                return false;
            };
            let Some(offset) = cursor.to_bury.front().copied() else {
                return false;
            };
            let event = cursor.open.get(&offset).and_then(|open| open.event.as_ref());
            // The letter and its mirror.
            let size = 2 * event.map_or(0, |event| event.body.bytes());
            if bytes > 0 && bytes + size > BURY_BYTES_MAX {
                return true;
            }
            bytes += size;
            cursor.to_bury.pop_front();
            let Some(open) = cursor.open.remove(&offset) else {
                continue;
            };
            cursor.tries_changed(offset);
            let Some(event) = &open.event else { continue };
            let Some(group) = self.groups.get(&at.group) else {
                return false;
            };
            let (Some(key), mirror) = (group.key.dead_letters(), group.key.dead_letter_mirror()) else {
                continue;
            };
            let letter = dead_letter(&open, event, group.name.as_str());
            let known = self.topic_ids.get(&key).copied();
            let topic = match known {
                Some(topic) => topic,
                None if key.is_system() => self.system_topic(now, &key, ops),
                None => {
                    let config = TopicConfig { partitions: 1, ..TopicConfig::default() };
                    self.make_topic_unbounded(&key, config, ops)
                }
            };
            if let Some(mirror) = mirror {
                let mirror = self.system_topic(now, &mirror, ops);
                self.push_append(mirror, mirrored(&letter), ops, appends);
            }
            self.push_append(topic, letter, ops, appends);
            self.counters.dead_lettered += 1;
        }
    }

    pub(crate) fn flushed(&mut self, at: CursorRef, committed: Offset) {
        let silent = self.sabotaged(Sabotage::NoWakeOnAck);
        let Some(cursor) = self.cursor_mut(at) else { return };
        cursor.flushing = None;
        cursor.durable = committed;
        let (again, wake) = (cursor.flush_now, cursor.flush_at);
        if again {
            self.to_flush.insert(at);
        }
        if let Some(when) = wake {
            self.wake_at(at, when);
        }
        if !silent {
            self.to_pump.insert(at.group);
        }
    }
}

/// The same once more; without its payload if the two would not fit one batch beside each other.
fn mirrored(letter: &NewEvent) -> NewEvent {
    let bytes = letter.body.bytes();
    if 2 * bytes <= BURY_BYTES_MAX {
        return letter.clone();
    }
    let mut headers = letter.body.headers.as_ref().map(Headers::to_map).unwrap_or_default();
    headers.retain(|name, _| name.starts_with("x-dlq-") || name == TRACEPARENT);
    headers.insert("x-dlq-payload".to_owned(), "left out: too large to be stored twice at once".to_owned());
    let body = EventBody {
        headers: Some(Headers::from_map(&headers)),
        payload: JsonText::null(),
        ..EventBody::clone(&letter.body)
    };
    NewEvent { id: None, body: Arc::new(body) }
}

/// The event's own key, payload and headers, and where it comes from.
fn dead_letter(open: &Open, event: &millrace_model::Event, group: &str) -> NewEvent {
    let mut headers = event.body.headers.as_ref().map(Headers::to_map).unwrap_or_default();
    let reason = open.reason.clone().unwrap_or_else(|| "not acknowledged in time".to_owned());
    for (name, value) in [
        ("x-dlq-topic", event.stream.topic.topic().to_owned()),
        ("x-dlq-partition", event.stream.partition.to_string()),
        ("x-dlq-offset", event.offset.to_string()),
        ("x-dlq-group", group.to_owned()),
        ("x-dlq-attempts", open.attempts.to_string()),
        ("x-dlq-reason", reason),
        ("x-dlq-id", event.id.to_string()),
        ("x-dlq-ts", event.ts.0.to_string()),
    ] {
        headers.insert(name.to_owned(), value);
    }
    let lineage = Lineage {
        root: event.body.lineage.root.clone().or_else(|| Some(event.id.clone())),
        depth: event.body.lineage.depth,
        causation: Some(event.id.clone()),
        correlation: event.body.lineage.correlation.clone(),
    };
    let body = EventBody {
        key: event.body.key.clone(),
        headers: Some(Headers::from_map(&headers)),
        priority: event.body.priority,
        lineage,
        payload: event.body.payload.clone(),
    };
    NewEvent { id: None, body: Arc::new(body) }
}
