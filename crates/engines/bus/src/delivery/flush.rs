//! Flushing cursors: one row per group and partition, however many acks it stands for, together with the dead letters
//! of events that the group gave up on.

use std::collections::BTreeSet;

use millrace_model::{BATCH_BYTES_MAX, Now, Offset, Op, Space, Timestamp, TopicConfig, TopicKey, keys};

use crate::bus::Bus;
use crate::delivery::dead_letter::Letter;
use crate::groups::cursor::InFlush;
use crate::groups::group::CursorRef;
use crate::lifecycle::pending::{Appending, Pending};
use crate::sabotage::Sabotage;
use crate::topics::topic::TopicId;

/// Bytes of dead letters in one batch; one event always fits.
const BURY_BYTES_MAX: usize = 4 << 20;
/// Rows of tries in one batch, and their bytes.
pub(crate) const TRIES_PER_BATCH_MAX: usize = 512;
pub(crate) const TRIES_BYTES_MAX: usize = 4 << 20;
/// Largest size of a cursor's row: with names of the largest size and as many acks ahead as it may remember.
const CURSOR_BYTES_MAX: usize = 4 << 10;

impl Bus {
    /// Starts the flushes that are due. A cursor has at most one flush under way: acks that arrive meanwhile share the
    /// next one.
    pub(crate) fn flush_all(&mut self, now: Now) {
        let waiting = std::mem::take(&mut self.to_flush);
        for at in waiting {
            match self.cursor_mut(at) {
                Some(cursor)
                    if cursor.flushing.is_some()
                        || cursor.refused_until.is_some_and(|until| until > now.mono) =>
                {
                    self.to_flush.insert(at);
                }
                Some(_) => self.flush(now, at),
                None => {}
            }
        }
    }

    fn flush(&mut self, now: Now, at: CursorRef) {
        let apart = self.sabotaged(Sabotage::DeadLetterApart);
        let (mut ops, mut appends) = (Vec::new(), Vec::new());
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
        let row = cursor.row(now.wall);
        let changed = cursor.note_flushed(&row) || cursor.has_try_changes();
        if !changed && cursor.confirms.is_empty() && ops.is_empty() {
            cursor.flush_now = false;
            return;
        }
        let buried = std::mem::take(&mut ops);
        let letters: usize = buried.iter().map(Op::bytes).sum();
        let bytes_max = BATCH_BYTES_MAX.saturating_sub(CURSOR_BYTES_MAX + letters).min(TRIES_BYTES_MAX);
        let rows_max = if cursor.small_batches { 1 } else { TRIES_PER_BATCH_MAX };
        for (offset, row) in cursor.take_try_changes(rows_max, bytes_max) {
            let key = keys::attempt(&stream, &name, Offset(offset));
            cursor.in_flush.tries.push(offset);
            ops.push(match row {
                Some(value) => Op::Put { space: Space::Attempts, key, value },
                None => Op::Delete { space: Space::Attempts, key },
            });
        }
        if ops.iter().any(|op| matches!(op, Op::Put { .. })) {
            // These rows may hold the delay of a NACK, which is counted in elapsed time.
            ops.push(self.elapsed.put(now));
        }
        ops.push(Op::Put { space: Space::Cursors, key: keys::cursor(&stream, &name), value: row.encode() });
        let more = more || cursor.has_try_changes();
        cursor.flush_now = more;
        let confirms = std::mem::take(&mut cursor.confirms);
        if apart && !buried.is_empty() {
            let (committed, since) = (row.committed, row.updated);
            let pending = Pending::Flush { cursor: at, committed, since, confirms, appends: Vec::new() };
            let token = self.commit(now, durability, ops, pending);
            self.commit(
                now,
                durability,
                buried,
                Pending::MoveDue { by: millrace_model::DueBy::Wall, appends },
            );
            if let Some(cursor) = self.cursor_mut(at) {
                cursor.flushing = Some(token);
            }
            return;
        }
        ops.extend(buried);
        let (committed, since) = (row.committed, row.updated);
        let pending = Pending::Flush { cursor: at, committed, since, confirms, appends };
        let token = self.commit(now, durability, ops, pending);
        if let Some(cursor) = self.cursor_mut(at) {
            cursor.flushing = Some(token);
        }
        if more {
            self.to_flush.insert(at);
        }
    }

    /// Turns events that have used up their attempts into appends to the dead-letter topic. From here on they count as
    /// done: the row that says so and the copies are one batch. Returns true if there are more than fit.
    fn bury(&mut self, now: Now, at: CursorRef, ops: &mut Vec<Op>, appends: &mut Vec<Appending>) -> bool {
        let mut bytes = 0;
        let private = self.groups.get(&at.group).is_some_and(|group| self.is_listed(&group.key));
        loop {
            let Some(group) = self.groups.get_mut(&at.group) else { return false };
            let Some(cursor) = group.cursors.get_mut(at.partition as usize) else { return false };
            let Some(offset) = cursor.to_dead_letter.front().copied() else { return false };
            let letter =
                cursor.open.get(&offset).and_then(|open| Letter::of(open, group.name.as_str(), private));
            let size = letter.as_ref().map_or(0, Letter::bytes);
            if bytes > 0 && (cursor.small_batches || bytes + size > BURY_BYTES_MAX) {
                return true;
            }
            bytes += size;
            cursor.to_dead_letter.pop_front();
            let Some(open) = cursor.open.remove(&offset) else { continue };
            cursor.tries_changed(offset);
            cursor.free_key(offset, &open);
            cursor.in_flush.buried.push((offset, open));
            let Some(Letter { topic, letter, mirror }) = letter else { continue };
            if let Some((mirror, mirrored)) = mirror {
                let mirror = self.system_topic(now, &mirror, ops);
                self.push_append(mirror, mirrored, ops, appends);
            }
            let topic = self.letter_topic(now, &topic, ops);
            self.push_append(topic, letter, ops, appends);
            self.counters.dead_lettered += 1;
        }
    }

    fn letter_topic(&mut self, now: Now, key: &TopicKey, ops: &mut Vec<Op>) -> TopicId {
        match self.topic_ids.get(key).copied() {
            Some(topic) => topic,
            None if key.is_system() => self.system_topic(now, key, ops),
            None => {
                let config = TopicConfig { partitions: 1, ..TopicConfig::default() };
                self.make_topic_unbounded(key, config, ops)
            }
        }
    }

    /// Handles a flush that was refused as too large. Its contents go back where they were; after a pause the cursor
    /// tries again, with as little as possible at once. So nothing is lost, and the store is not kept busy.
    pub(crate) fn flush_refused(&mut self, now: Now, at: CursorRef, letters: &[Appending]) {
        self.write_topics_again(now, letters);
        let until = now.mono + self.limits.read_retry_ms;
        let Some(cursor) = self.cursor_mut(at) else { return };
        cursor.flushing = None;
        cursor.flush_now = true;
        cursor.small_batches = true;
        cursor.refused_until = Some(until);
        let letters = cursor.put_back() as u64;
        self.counters.dead_lettered = self.counters.dead_lettered.saturating_sub(letters);
        self.to_flush.insert(at);
        self.wake_at(at, until);
    }

    /// Writes the rows of dead-letter topics again: they may have been in the refused batch, and other commits already
    /// rely on them.
    fn write_topics_again(&mut self, now: Now, letters: &[Appending]) {
        let topics: BTreeSet<TopicId> = letters.iter().map(|letter| letter.topic).collect();
        let rows = topics.iter().filter_map(|id| self.topics.get(id)).map(|topic| {
            let (key, value) = (keys::topic(&topic.key), topic.row().encode());
            Op::Put { space: Space::Topics, key, value }
        });
        let rows: Vec<Op> = rows.collect();
        if !rows.is_empty() {
            self.commit(now, self.limits.durability, rows, Pending::Row);
        }
    }

    pub(crate) fn flushed(&mut self, at: CursorRef, committed: Offset, since: Option<Timestamp>) {
        let silent = self.sabotaged(Sabotage::NoWakeOnAck);
        let Some(cursor) = self.cursor_mut(at) else { return };
        cursor.flushing = None;
        cursor.durable = committed;
        cursor.durable_since = since;
        cursor.in_flush = InFlush::default();
        cursor.small_batches &= !cursor.to_dead_letter.is_empty() || cursor.has_try_changes();
        let (again, wake) = (cursor.flush_now, cursor.flush_at);
        if again {
            self.to_flush.insert(at);
        }
        if let Some(when) = wake {
            self.wake_at(at, when);
        }
        if !silent {
            self.to_deliver.insert(at.group);
        }
    }
}
