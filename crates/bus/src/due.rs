//! Delayed events: woken when the wall clock reaches them, moved to their topic in one commit.

use millrace_model::{Append, DueRow, Mono, Now, Op, Space, Timestamp, TopicKey, keys};

use bytes::Bytes;

use crate::bus::Bus;
use crate::effect::Effect;
use crate::input::Token;
use crate::pending::{Appending, Pending};

/// Bytes of rows moved by one commit; one row always fits.
const MOVE_BYTES_MAX: usize = 4 << 20;
/// Pause before the table is looked at again after it could not be read, or a move was refused.
const RETRY_MS: u64 = 500;

#[derive(Debug, Default)]
pub(crate) struct DueState {
    /// When the next delayed event may be due; re-derived from the table after each look.
    pub(crate) wake: Option<Mono>,
    /// The time behind `wake`.
    next: Option<Timestamp>,
    /// Whether anything may wait, so that ids need be looked for among what waits. Never unset: a topic that delays
    /// once does so again.
    pub(crate) any: bool,
    scanning: bool,
    /// Commits under way that move rows: the table is looked at again when they are through.
    moves: usize,
}

impl Bus {
    /// Something is due at that time, perhaps earlier than what was expected so far.
    pub(crate) fn expect_due(&mut self, now: Now, at: Timestamp) {
        self.due.next = Some(self.due.next.map_or(at, |next| next.min(at)));
        self.rearm_due(now);
    }

    /// The wall clock may step, so what is waited for is the time; the moment is computed from it again and again.
    fn rearm_due(&mut self, now: Now) {
        let busy = self.due.scanning || self.due.moves > 0 || self.stopping;
        self.due.wake = self.due.next.filter(|_| !busy).map(|next| now.mono_at(next));
    }

    pub(crate) fn wake_due(&mut self, now: Now) {
        if self.due.next.is_none() {
            return;
        }
        self.rearm_due(now);
        if self.due.wake.is_some_and(|wake| wake <= now.mono) {
            self.scan_due();
        }
    }

    fn scan_due(&mut self) {
        self.due.scanning = true;
        self.due.wake = None;
        self.due.next = None;
        let token = self.token();
        self.pending.insert(token, Pending::ScanDue);
        self.effects.push(Effect::ScanDue { token, rows_max: self.limits.due_rows_max });
    }

    pub(crate) fn due_rows(&mut self, now: Now, token: Token, rows: Option<Vec<(String, Bytes)>>) {
        if !matches!(self.pending.remove(&token), Some(Pending::ScanDue)) {
            return;
        }
        self.due.scanning = false;
        let Some(rows) = rows else {
            return self.expect_due(now, now.wall + RETRY_MS);
        };
        let full = rows.len() >= self.limits.due_rows_max;
        let (mut ops, mut appends, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut durability = millrace_model::Durability::Memory;
        for (key, value) in rows {
            match keys::due_time(&key) {
                Some(at) if at > now.wall => {
                    self.expect_due(now, at);
                    break;
                }
                _ => {}
            }
            if bytes > 0 && bytes + value.len() > MOVE_BYTES_MAX {
                self.commit_move(now, durability, std::mem::take(&mut ops), std::mem::take(&mut appends));
                bytes = 0;
            }
            bytes += value.len();
            durability = durability.max(self.move_due(&key, value, &mut ops, &mut appends));
        }
        if !ops.is_empty() {
            self.commit_move(now, durability, ops, appends);
        }
        if full && self.due.next.is_none() {
            self.due.next = Some(now.wall);
        }
        self.rearm_due(now);
    }

    fn commit_move(
        &mut self,
        now: Now,
        durability: millrace_model::Durability,
        ops: Vec<Op>,
        appends: Vec<Appending>,
    ) {
        self.due.moves += 1;
        self.commit(now, durability, ops, Pending::MoveDue { appends });
    }

    /// One row becomes one append. A row of a topic that was deleted is removed, even if there is one of that name again:
    /// nobody could ever receive it. A row that cannot be read, or that names no topic, was confirmed all the same: it
    /// is set aside and counted, not thrown away.
    fn move_due(
        &mut self,
        key: &str,
        value: Bytes,
        ops: &mut Vec<Op>,
        appends: &mut Vec<Appending>,
    ) -> millrace_model::Durability {
        ops.push(Op::Delete { space: Space::Due, key: key.to_owned() });
        let read = DueRow::decode(key, &value).ok();
        let Some((topic, row)) = read.and_then(|row| Some((TopicKey::parse(&row.topic).ok()?, row))) else {
            let (space, key) = (Space::Kv, format!("quarantine/due/{key}"));
            ops.push(Op::Put { space, key, value });
            self.counters.quarantined += 1;
            return millrace_model::Durability::Fsync;
        };
        if let Some(id) = &row.id {
            ops.push(Op::Delete { space: Space::DueIds, key: keys::due_id(&topic, row.made, id) });
        }
        let known =
            self.topic_ids.get(&topic).filter(|id| self.topics.get(id).is_some_and(|t| t.made == row.made));
        if let Some(id) = known {
            let stream = topic.stream(millrace_model::Partition(row.partition));
            let event = row.new_event();
            appends.push(Appending { topic: *id, stream: stream.clone(), body: event.body.clone() });
            // It has had its id since it was confirmed: whatever the clock did since, it is no duplicate.
            ops.push(Op::Append(Append { stream, event, dedupe_window_ms: 0, made: None }));
        }
        row.durability
    }

    /// The store would not take them: the rows are where they were, and are looked at again.
    pub(crate) fn move_refused(&mut self, now: Now) {
        self.due.moves = self.due.moves.saturating_sub(1);
        self.expect_due(now, now.wall + RETRY_MS);
    }

    pub(crate) fn due_moved(&mut self, now: Now) {
        self.due.moves = self.due.moves.saturating_sub(1);
        self.rearm_due(now);
    }
}
