//! Flushing cursors: one row per group and partition, however many acks it stands for, together with the dead letters
//! of events that the group gave up on.

use std::collections::BTreeSet;

use millrace_model::{
    BATCH_BYTES_MAX, Now, Offset, Op, Partition, Space, Timestamp, TopicConfig, TopicKey, keys, never,
};

use crate::bus::Bus;
use crate::delivery::dead_letter::DeadLetter;
use crate::groups::group::CursorRef;
use crate::groups::table::Located;
use crate::lifecycle::pending::{PendingAppend, PendingEffect};
use crate::stats::DeadLetterCounts;
use crate::topics::topic::TopicId;

/// Bytes of dead letters in one batch; one event always fits.
const DEAD_LETTER_BYTES_MAX: usize = 4 << 20;
/// Rows of attempts in one batch, and their bytes.
pub(crate) const ATTEMPTS_PER_BATCH_MAX: usize = 512;
pub(crate) const ATTEMPTS_BYTES_MAX: usize = 4 << 20;
/// Largest size of a cursor's row: with names of the largest size and as many acks ahead as it may remember.
const CURSOR_BYTES_MAX: usize = 4 << 10;

impl Bus {
    /// Starts the flushes that are due. A cursor has at most one flush under way: acks that arrive meanwhile share the
    /// next one.
    pub(crate) fn flush_all(&mut self, now: Now) {
        for at in self.agenda.take_flushes() {
            match self.groups.cursor_mut(at) {
                Some(cursor) if cursor.flush.must_wait(now.mono) => self.agenda.flush(at),
                Some(_) => self.flush(now, at),
                None => {}
            }
        }
    }

    fn flush(&mut self, now: Now, at: CursorRef) {
        let (mut ops, mut appends) = (Vec::new(), Vec::new());
        let more = self.take_dead_letters(now, at, &mut ops, &mut appends);
        let Some(Located { topic, name, cursor, .. }) =
            self.groups.must_locate(&mut self.topics, at, &self.broken)
        else {
            return;
        };
        let durability = topic.durability(&self.limits);
        let stream = topic.key.stream(Partition(at.partition));
        let (row, changed) = cursor.begin_row(now.wall);
        if !changed && cursor.flush.confirms().is_empty() && ops.is_empty() {
            cursor.flush.set_requested(false);
            return;
        }
        let letter_ops = std::mem::take(&mut ops);
        let letters: usize = letter_ops.iter().map(Op::bytes).sum();
        let bytes_max = BATCH_BYTES_MAX.saturating_sub(CURSOR_BYTES_MAX + letters).min(ATTEMPTS_BYTES_MAX);
        let rows_max = if cursor.flush.in_small_batches() { 1 } else { ATTEMPTS_PER_BATCH_MAX };
        for (offset, row) in cursor.take_attempt_changes(rows_max, bytes_max) {
            let key = keys::attempt(&stream, name, Offset(offset));
            cursor.note_attempt_written(offset);
            ops.push(match row {
                Some(value) => Op::Put { space: Space::Attempts, key, value },
                None => Op::Delete { space: Space::Attempts, key },
            });
        }
        if ops.iter().any(|op| matches!(op, Op::Put { .. })) {
            // These rows may hold the delay of a NACK, which is counted in elapsed time.
            ops.push(self.elapsed.put(now));
        }
        ops.push(Op::Put { space: Space::Cursors, key: keys::cursor(&stream, name), value: row.encode() });
        let more = more || cursor.has_attempt_changes();
        cursor.flush.set_requested(more);
        let confirms = cursor.flush.take_confirms();
        ops.extend(letter_ops);
        let (committed, since) = (row.committed, row.updated);
        let pending = PendingEffect::Flush { cursor: at, committed, since, confirms, appends };
        let token = self.commit(now, durability, ops, pending);
        if let Some(cursor) = self.groups.must_cursor_mut(at, &self.broken) {
            cursor.flush.begin(token);
        }
        if more {
            self.agenda.flush(at);
        }
    }

    /// Turns events that have used up their attempts into appends to the dead-letter topic. From here on they count as
    /// done: the row that says so and the copies are one batch. Returns true if there are more than fit.
    fn take_dead_letters(
        &mut self,
        now: Now,
        at: CursorRef,
        ops: &mut Vec<Op>,
        appends: &mut Vec<PendingAppend>,
    ) -> bool {
        let mut bytes = 0;
        let private = self.groups.get(at.group).is_some_and(|group| self.is_listed(&group.key));
        loop {
            let Some(Located { name, cursor, .. }) =
                self.groups.must_locate(&mut self.topics, at, &self.broken)
            else {
                return false;
            };
            let Some((_, open)) = cursor.window.next_dead_letter() else { return false };
            let letter = DeadLetter::of(open, name.as_str(), private);
            let mut counted = DeadLetterCounts::default();
            counted.add(open.reason());
            let size = letter.as_ref().map_or(0, DeadLetter::bytes);
            if bytes > 0 && (cursor.flush.in_small_batches() || bytes + size > DEAD_LETTER_BYTES_MAX) {
                return true;
            }
            bytes += size;
            cursor.take_dead_letter();
            let Some(DeadLetter { topic, letter, mirror }) = letter else {
                never!(self.broken, "a dead letter of {at:?} has no body, or nowhere to go");
                continue;
            };
            if let Some((mirror, mirrored)) = mirror {
                let mirror = self.system_topic(now, &mirror, ops);
                self.push_append(mirror, mirrored, ops, appends);
            }
            let topic = self.letter_topic(now, &topic, ops);
            self.push_append(topic, letter, ops, appends);
            self.counters.dead_lettered += counted;
        }
    }

    fn letter_topic(&mut self, now: Now, key: &TopicKey, ops: &mut Vec<Op>) -> TopicId {
        match self.topics.id(key) {
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
    pub(crate) fn flush_refused(&mut self, now: Now, at: CursorRef, letters: &[PendingAppend]) {
        self.write_topics_again(now, letters);
        let until = now.mono + self.limits.read_retry_ms;
        // The group may have been deleted while its cursor was being written.
        let Some(cursor) = self.groups.cursor_mut(at) else { return };
        let letters = cursor.put_back_flush(until);
        self.counters.dead_lettered -= letters;
        self.agenda.flush(at);
        self.wake_at(at, until);
    }

    /// Writes the rows of dead-letter topics again: they may have been in the refused batch, and other commits already
    /// rely on them.
    fn write_topics_again(&mut self, now: Now, letters: &[PendingAppend]) {
        let topics: BTreeSet<TopicId> = letters.iter().map(|letter| letter.topic).collect();
        let rows = topics.iter().filter_map(|id| self.topics.get(*id)).map(|topic| {
            let (key, value) = (keys::topic(&topic.key), topic.row().encode());
            Op::Put { space: Space::Topics, key, value }
        });
        let rows: Vec<Op> = rows.collect();
        if !rows.is_empty() {
            self.commit(now, self.limits.durability, rows, PendingEffect::Row);
        }
    }

    pub(crate) fn flushed(&mut self, at: CursorRef, committed: Offset, since: Option<Timestamp>) {
        // The group may have been deleted while its cursor was being written.
        let Some(cursor) = self.groups.cursor_mut(at) else { return };
        cursor.end_flush(committed, since);
        let (again, wake) = (cursor.flush.is_requested(), cursor.flush.due_at());
        if again {
            self.agenda.flush(at);
        }
        if let Some(when) = wake {
            self.wake_at(at, when);
        }
        self.agenda.deliver(at.group);
    }
}
