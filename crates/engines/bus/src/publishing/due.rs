//! Delayed events: they wait in the table `due` and, when their time has come, are moved to their topic in one commit.
//!
//! An event that was delayed until a point in time waits for the wall clock; an event that was delayed for a duration
//! waits for elapsed time. Each kind has its own range of the table, in the order of its own time.
//!
//! Sessions in other processes write and move rows of the same table. So the commit of a move checks that all of its
//! rows are still there. If somebody has moved one of them before, the commit is refused and the table is read again.

use bytes::Bytes;
use millrace_model::{
    Check, DueBy, DueEvent, Durability, Mono, Now, Op, Refusal, Timestamp, keys, never, set_aside,
};

use crate::bus::Bus;
use crate::interface::effect::Effect;
use crate::interface::input::Token;
use crate::lifecycle::pending::{PendingAppend, PendingEffect};
use crate::topics::topic::TopicId;

/// Bytes of rows moved by one commit; one row always fits.
const MOVE_BYTES_MAX: usize = 4 << 20;
/// Pause before the table is read again after it could not be read, or a move was too large.
const RETRY_MS: u64 = 500;

#[derive(Debug, Default)]
pub(crate) struct DueState {
    /// When the next delayed event may be due; derived again from the table after each scan.
    wake: Option<Mono>,
    /// The times behind `wake`.
    next_by_wall: Option<Timestamp>,
    next_by_elapsed: Option<Timestamp>,
    /// Whether there may be delayed events, which a new schema must be compared with. Never unset: a topic that delays
    /// events once does so again.
    any: bool,
    scanning: bool,
    /// Commits under way that move rows: the table is read again when they have ended.
    moves: usize,
}

impl DueState {
    pub(crate) fn wake(&self) -> Option<Mono> {
        self.wake
    }

    /// Whether there may be delayed events.
    pub(crate) fn may_exist(&self) -> bool {
        self.any
    }

    /// Notes that there are delayed events.
    pub(crate) fn note_delayed(&mut self) {
        self.any = true;
    }

    /// Checks the numbers of moves and scans under way.
    pub(crate) fn check(&self, moves: usize, scans: usize) {
        assert_eq!(
            (self.moves, usize::from(self.scanning)),
            (moves, scans),
            "moves and scans of delayed events"
        );
    }

    fn move_ended(&mut self) {
        self.moves = self.moves.saturating_sub(1);
    }

    fn next(&mut self, by: DueBy) -> &mut Option<Timestamp> {
        match by {
            DueBy::Wall => &mut self.next_by_wall,
            DueBy::Elapsed => &mut self.next_by_elapsed,
        }
    }
}

impl Bus {
    /// Notes that an event is due at `at`, which may be earlier than all others known so far.
    pub(crate) fn expect_due(&mut self, now: Now, by: DueBy, at: Timestamp) {
        let next = self.due.next(by);
        *next = Some(next.map_or(at, |next| next.min(at)));
        self.rearm_due(now);
    }

    /// Returns `now`, its wall time replaced by the time that events of this kind wait for.
    fn now_by(&self, now: Now, by: DueBy) -> Now {
        match by {
            DueBy::Wall => now,
            DueBy::Elapsed => self.elapsed.instead_of_wall(now),
        }
    }

    /// Computes the moment to wake at from the due times. Done again and again, because the wall clock may be set.
    fn rearm_due(&mut self, now: Now) {
        let busy = self.due.scanning || self.due.moves > 0 || self.lifecycle.is_stopping();
        let wakes = [DueBy::Wall, DueBy::Elapsed]
            .map(|by| self.due.next(by).map(|next| self.now_by(now, by).mono_at(next)));
        self.due.wake = wakes.into_iter().flatten().min().filter(|_| !busy);
    }

    pub(crate) fn wake_due(&mut self, now: Now) {
        if self.due.next_by_wall.is_none() && self.due.next_by_elapsed.is_none() {
            return;
        }
        self.rearm_due(now);
        if self.due.wake.is_none_or(|wake| wake > now.mono) {
            return;
        }
        // If both kinds are due, the one by elapsed time goes first; the other follows when its rows are moved.
        let elapsed = self.elapsed.at(now);
        let by_elapsed = self.due.next_by_elapsed.is_some_and(|next| next <= elapsed);
        self.scan_due(if by_elapsed { DueBy::Elapsed } else { DueBy::Wall });
    }

    fn scan_due(&mut self, waits: DueBy) {
        self.due.scanning = true;
        self.due.wake = None;
        *self.due.next(waits) = None;
        let token = self.pending.begin(PendingEffect::ScanDue(waits));
        self.effects.push(Effect::ScanDue { token, waits, rows_max: self.limits.due_rows_max });
    }

    pub(crate) fn due_rows(&mut self, now: Now, token: Token, rows: Option<Vec<(String, Bytes)>>) {
        let by = match self.pending.complete(token) {
            Some(PendingEffect::ScanDue(by)) => by,
            Some(other) => return never!(self.broken, "rows are the answer to {other:?}"),
            // Given up when the store failed.
            None => return,
        };
        self.due.scanning = false;
        let time = self.now_by(now, by).wall;
        let Some(rows) = rows else {
            return self.expect_due(now, by, time + RETRY_MS);
        };
        let full = rows.len() >= self.limits.due_rows_max;
        let mut together = DueMove::default();
        for (key, value) in rows {
            if let Some(at) = keys::due_time(&key).filter(|at| *at > time) {
                self.expect_due(now, by, at);
                break;
            }
            if together.bytes > 0 && together.bytes + value.len() > MOVE_BYTES_MAX {
                self.commit_move(now, by, std::mem::take(&mut together));
            }
            let bytes = value.len();
            let Some(event) = DueEvent::read(&key, &value) else {
                together.set_aside(&key, value);
                self.counters.quarantined += 1;
                continue;
            };
            match self.topic_of(&event) {
                Some(topic) => self.move_together(topic, &event, bytes, &mut together),
                None => self.move_alone(now, by, event),
            }
        }
        if !together.ops.is_empty() {
            self.commit_move(now, by, together);
        }
        if full && self.due.next(by).is_none() {
            *self.due.next(by) = Some(time);
        }
        self.rearm_due(now);
    }

    fn commit_move(&mut self, now: Now, by: DueBy, together: DueMove) {
        let DueMove { durability, checks, ops, appends, .. } = together;
        self.due.moves += 1;
        self.commit_if(now, durability, checks, ops, PendingEffect::MoveDue { by, appends });
    }

    /// Returns the topic that the event was published to, if this engine knows it.
    fn topic_of(&self, event: &DueEvent) -> Option<TopicId> {
        let id = self.topics.id(&event.topic)?;
        self.topics.get(id).is_some_and(|topic| topic.incarnation == event.row.incarnation).then_some(id)
    }

    fn move_together(&mut self, topic: TopicId, event: &DueEvent, bytes: usize, together: &mut DueMove) {
        let append = event.append();
        let (stream, body) = (append.stream.clone(), append.event.body.clone());
        self.topics.get_mut(topic).into_iter().for_each(|topic| topic.check_candidate_schema(&body));
        together.bytes += bytes;
        together.durability = together.durability.max(event.row.durability);
        together.checks.push(event.waits());
        together.ops.extend(event.removal());
        together.ops.push(Op::Append(append));
        together.appends.push(PendingAppend { topic, stream, body });
    }

    /// Moves an event of a topic that this engine does not know: a session has created the topic, or it was deleted.
    /// The commit's check tells which. If the topic exists, this engine learns of it when the append is reported
    /// (`foreign_appends.rs`).
    fn move_alone(&mut self, now: Now, by: DueBy, event: DueEvent) {
        let checks = vec![event.waits(), event.topic_stands()];
        let mut ops = event.removal();
        ops.push(Op::Append(event.append()));
        self.due.moves += 1;
        let durability = event.row.durability;
        self.commit_if(now, durability, checks, ops, PendingEffect::MoveAlone { by, event: Box::new(event) });
    }

    /// Scans again, because a session has moved a row of this move before. The other rows are where they were.
    pub(crate) fn already_moved(&mut self, now: Now, by: DueBy) {
        self.due.move_ended();
        let time = self.now_by(now, by).wall;
        self.expect_due(now, by, time);
    }

    /// Removes the row if its topic was deleted, even if there is a new topic of that name: nobody could ever receive
    /// the event.
    pub(crate) fn alone_refused(&mut self, now: Now, by: DueBy, event: &DueEvent, refusal: &Refusal) {
        if refusal.check == 0 {
            return self.already_moved(now, by);
        }
        let (checks, ops) = (vec![event.waits()], event.removal());
        self.commit_if(
            now,
            event.row.durability,
            checks,
            ops,
            PendingEffect::MoveDue { by, appends: Vec::new() },
        );
    }

    /// Handles a move that was refused as too large: the rows are where they were, and are read again after a pause.
    pub(crate) fn move_refused(&mut self, now: Now, by: DueBy) {
        self.due.move_ended();
        let time = self.now_by(now, by).wall;
        self.expect_due(now, by, time + RETRY_MS);
    }

    pub(crate) fn due_moved(&mut self, now: Now) {
        self.due.move_ended();
        self.rearm_due(now);
    }

    /// Writes the row of the elapsed time again when the wall clock was set, or is in doubt, and delays may be waiting.
    pub(crate) fn keep_elapsed(&mut self, now: Now) {
        if self.elapsed.is_outdated(now) && !self.lifecycle.is_stopping() {
            let (op, durability) = (self.elapsed.put(now), self.limits.durability);
            self.commit(now, durability, vec![op], PendingEffect::Row);
        }
    }
}

/// Rows that are moved by one commit.
#[derive(Debug)]
struct DueMove {
    durability: Durability,
    checks: Vec<Check>,
    ops: Vec<Op>,
    appends: Vec<PendingAppend>,
    bytes: usize,
}

impl Default for DueMove {
    fn default() -> DueMove {
        let (checks, ops, appends) = (Vec::new(), Vec::new(), Vec::new());
        DueMove { durability: Durability::Memory, checks, ops, appends, bytes: 0 }
    }
}

impl DueMove {
    fn set_aside(&mut self, key: &str, value: Bytes) {
        self.bytes += value.len();
        self.durability = Durability::Fsync;
        self.checks.push(Check::Present { space: millrace_model::Space::Due, key: key.to_owned() });
        self.ops.extend(set_aside(key, value));
    }
}
