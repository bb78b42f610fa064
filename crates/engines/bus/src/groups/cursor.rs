//! How far one group is in one stream: what it was sent, what it holds, what is done.
//!
//! Every offset below the next one to be read is in exactly one place: read ahead (`read_ahead`: read, not sent), in the
//! window (`window`: sent or held back, not done), or nowhere, which means done. So the commit is never stored while
//! running: it is one less than the lowest offset that is somewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{AHEAD_MAX, AttemptRow, Bitmap, CursorRow, Event, Filter, Mono, Offset, Timestamp};

mod attempts;
mod flush_state;
mod open;
mod read_ahead;
mod window;

use attempts::AttemptRows;
use flush_state::{FlushContents, FlushState};
pub(crate) use open::{Lease, Open, OpenState};
pub(crate) use read_ahead::{Fetched, ReadAhead};
pub(crate) use window::{Leased, Window};

use crate::delivery::ended::EndedDelivery;
use crate::groups::group::CursorRef;
use crate::groups::sticky::KeyHash;
use crate::interface::input::ConnId;
use crate::stats::DeadLetterCounts;

#[derive(Debug, Default)]
pub(crate) struct Cursor {
    pub(crate) read_ahead: ReadAhead,
    pub(crate) window: Window,
    attempts: AttemptRows,
    pub(crate) flush: FlushState,
    /// When this cursor is registered in the agenda to be woken.
    wake: Option<Mono>,
}

/// The fate of an event whose delivery failed: see `Cursor::requeue`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Requeue {
    Now,
    /// At this moment, which is also given in elapsed time.
    Later(Mono, Timestamp),
    DeadLetter,
}

/// The tasks of a cursor that was woken.
pub(crate) struct Woken {
    /// Offsets whose lease has expired.
    pub(crate) expired: Vec<u64>,
    /// A flush was due, and is requested now.
    pub(crate) flush: bool,
}

impl Cursor {
    /// Returns a cursor that has done everything before `next`.
    pub(crate) fn at(next: Offset) -> Cursor {
        let next = next.0.max(1);
        Cursor {
            read_ahead: ReadAhead::at(next),
            window: Window::at(next - 1),
            flush: FlushState::at(Offset(next - 1)),
            ..Cursor::default()
        }
    }

    /// Restores a cursor from its rows.
    pub(crate) fn restore(row: CursorRow, attempts: BTreeMap<u64, AttemptRow>) -> Cursor {
        let committed = row.committed.0;
        let done = row.ahead.iter().map(|bit| committed + 1 + bit).collect();
        Cursor {
            window: Window::at(committed),
            attempts: AttemptRows::restore(attempts.keys().copied().collect(), committed),
            read_ahead: ReadAhead::restore(committed + 1, done, attempts),
            flush: FlushState::restore(row),
            wake: None,
        }
    }

    /// Moves the cursor and forgets its former state. Rows of attempts are deleted by the next flush.
    pub(crate) fn seek(&mut self, next: Offset) {
        let next = next.0.max(1);
        self.read_ahead = ReadAhead::at(next);
        self.window = self.window.moved(next - 1);
        self.attempts.delete_all();
        self.flush = self.flush.moved();
    }

    pub(crate) fn committed(&self) -> Offset {
        let next = self.read_ahead.next();
        let lowest = self.window.lowest().unwrap_or(next);
        let lowest = self.read_ahead.first().map_or(lowest, |fetched| lowest.min(fetched.offset()));
        Offset(lowest.min(next) - 1)
    }

    /// Whether another fresh event may be sent without passing the bound on acks ahead of the commit.
    pub(crate) fn may_send(&self, offset: Offset) -> bool {
        offset.0 <= self.committed().0 + AHEAD_MAX
    }

    /// Takes an event that was just read, unless the event is done already or the group's filter turned it away
    /// (`wanted` is false).
    pub(crate) fn read(&mut self, event: &Arc<Event>, wanted: bool) {
        if !self.read_ahead.push(event, wanted) {
            self.attempts_changed(event.offset.0);
        }
    }

    /// Skips to `offset`, because the log has nothing below it any more. Returns how many offsets were never read.
    pub(crate) fn skip_to(&mut self, offset: u64) -> u64 {
        let (skipped, gone) = self.read_ahead.skip_to(offset);
        for at in gone {
            self.attempts_changed(at);
        }
        skipped
    }

    /// Drops the events that were read and not sent, as if they had not been read. Called when the group has no members
    /// left.
    pub(crate) fn unread(&mut self) {
        self.read_ahead.unread(self.committed().0 + 1 + AHEAD_MAX);
    }

    /// Applies a new filter: events that were read before, are not leased and do not match it count as done.
    pub(crate) fn refilter(&mut self, filter: &Filter) {
        self.read_ahead.refilter(filter);
        for offset in self.window.unwanted(filter) {
            self.complete(offset);
        }
        self.flush.request();
    }

    /// Moves the first event that was read ahead into the window, without sending it.
    pub(crate) fn hold_back(&mut self, state: OpenState, hash: impl Fn(&str) -> KeyHash) -> Option<u64> {
        let fetched = self.read_ahead.pop()?;
        let offset = fetched.offset();
        self.window.passed(offset);
        self.window.insert(fetched, state, hash);
        if state == OpenState::ToDeadLetter {
            self.flush.request();
        }
        Some(offset)
    }

    /// Moves the first event that was read ahead into the window, to be leased at once.
    pub(crate) fn open_to_lease(&mut self) {
        if let Some(fetched) = self.read_ahead.pop() {
            self.window.passed(fetched.offset());
            self.window.open_to_lease(fetched);
        }
    }

    /// Leases an event to a connection until a deadline: see `Window::lease`.
    pub(crate) fn lease(
        &mut self,
        offset: u64,
        lease: Lease,
        bytes_max: usize,
        hash: impl Fn(&str) -> KeyHash,
    ) -> Option<Leased> {
        let leased = self.window.lease(offset, lease, bytes_max, hash)?;
        // The row says that the event waits, or is out of date by the next attempt.
        self.attempts.changed(offset, false);
        Some(leased)
    }

    /// Marks an event as done. Returns the delivery that this ends.
    pub(crate) fn complete(&mut self, offset: u64) -> Option<EndedDelivery> {
        let open = self.window.remove(offset)?;
        self.attempts_changed(offset);
        open.into_ended()
    }

    /// Marks an event as done because its holder acked a higher offset. Returns the delivery that this ends.
    pub(crate) fn complete_implicitly(&mut self, offset: u64, conn: ConnId) -> Option<EndedDelivery> {
        let open = self.window.remove_implicitly(offset, conn)?;
        self.attempts_changed(offset);
        open.into_ended()
    }

    pub(crate) fn reopen(&mut self, offset: u64, conn: ConnId) -> bool {
        self.window.reopen(offset, conn)
    }

    /// Decides what becomes of an event that is leased no longer, or was read again.
    pub(crate) fn requeue(&mut self, offset: u64, reason: Option<&str>, next: Requeue) {
        if let Some(reason) = reason {
            self.window.set_reason(offset, reason);
        }
        match next {
            Requeue::Now => self.window.make_ready(offset),
            Requeue::Later(until, not_before) => self.window.wait(offset, until, Some(not_before)),
            Requeue::DeadLetter => {
                self.window.give_up(offset);
                self.flush.request();
            }
        }
        self.attempts_changed(offset);
    }

    /// Makes an event ready again without counting an attempt: the delivery under way reached nobody, or nobody worked
    /// on it.
    pub(crate) fn give_back(&mut self, offset: u64) {
        self.window.give_back(offset);
        self.attempts_changed(offset);
    }

    /// Gives back all leases when the server stops: a delivery that the server itself cut short is no attempt.
    pub(crate) fn give_back_all(&mut self) {
        let leased: Vec<u64> = self.window.leases().map(|(offset, _)| offset).collect();
        for offset in leased {
            self.give_back(offset);
        }
    }

    /// Begins to read a single event again. Returns false when enough such reads are under way.
    pub(crate) fn begin_refetch(&mut self, offset: u64) -> bool {
        let begun = self.read_ahead.begin_refetch();
        if begun {
            self.window.begin_refetch(offset);
        }
        begun
    }

    /// Lets an event that could not be read again wait.
    pub(crate) fn refetch_at(&mut self, offset: u64, until: Mono) {
        self.window.wait(offset, until, None);
    }

    /// Takes an event that has used up its attempts out of the window: it counts as done from here on.
    pub(crate) fn take_dead_letter(&mut self) {
        if let Some((offset, open)) = self.window.pop_dead_letter() {
            self.attempts_changed(offset);
            self.flush.contents_mut().dead_letters.push((offset, open));
        }
    }

    /// Returns the cursor's row as it is to be written at `now`, and whether it, or a row of attempts, differs from
    /// what was written before.
    pub(crate) fn begin_row(&mut self, now: Timestamp) -> (CursorRow, bool) {
        self.flush.clear_due();
        let row = self.row(now);
        let changed = self.note_row(&row) || self.has_attempt_changes();
        (row, changed)
    }

    /// Remembers the row as written. Returns whether it differs from the row before.
    fn note_row(&mut self, row: &CursorRow) -> bool {
        self.window.forget_implicit(row.committed.0);
        self.flush.note_row(row)
    }

    fn row(&self, now: Timestamp) -> CursorRow {
        let committed = self.committed();
        let mut ahead = Bitmap::default();
        // Not further: acked offsets lie within this bound, and offsets skipped beyond it are skipped again.
        let furthest = committed.0 + 1 + AHEAD_MAX;
        let end = self.read_ahead.next().min(furthest);
        let busy = self.window.len() + self.read_ahead.len();
        if busy as u64 != self.read_ahead.next() - 1 - committed.0 {
            // Sent offsets lie below fetched ones, so both lists in a row are in order, and every offset between two
            // entries is done.
            let mut lowest = committed.0 + 1;
            for offset in self.window.offsets().chain(self.read_ahead.offsets()).chain([end]) {
                for done in lowest..offset.min(end) {
                    ahead.insert(done - committed.0 - 1);
                }
                lowest = offset + 1;
            }
        }
        for done in self.read_ahead.done_before_read().take_while(|done| *done < furthest) {
            ahead.insert(done - committed.0 - 1);
        }
        let delivered = Offset(self.window.delivered_through());
        CursorRow { committed, delivered, ahead, updated: self.flush.since(committed, now) }
    }

    /// Returns the rows of attempts that must be written (`Some`) or deleted (`None`), at most `rows_max` rows and
    /// `bytes_max` bytes; the rest stays for the next flush.
    pub(crate) fn take_attempt_changes(
        &mut self,
        rows_max: usize,
        bytes_max: usize,
    ) -> Vec<(u64, Option<Bytes>)> {
        self.attempts.take_changes(&self.window, rows_max, bytes_max)
    }

    pub(crate) fn has_attempt_changes(&self) -> bool {
        self.attempts.has_changes()
    }

    pub(crate) fn stored_attempts(&self) -> impl Iterator<Item = u64> + '_ {
        self.attempts.stored()
    }

    /// Notes that the row of attempts of this offset is part of the flush that begins.
    pub(crate) fn note_attempt_written(&mut self, offset: u64) {
        self.flush.contents_mut().attempts.push(offset);
    }

    /// Ends the flush under way: it is durable.
    pub(crate) fn end_flush(&mut self, committed: Offset, since: Option<Timestamp>) {
        self.flush.set_durable(committed, since);
        self.flush.complete(self.window.has_dead_letters() || self.has_attempt_changes());
    }

    /// Takes back the flush under way, which was refused: nothing in it is done. Returns the dead letters it held.
    pub(crate) fn put_back_flush(&mut self, until: Mono) -> DeadLetterCounts {
        let FlushContents { dead_letters, attempts } = self.flush.refused(until);
        let mut letters = DeadLetterCounts::default();
        for (_, open) in &dead_letters {
            letters.add(open.reason());
        }
        for (offset, open) in dead_letters.into_iter().rev() {
            self.window.put_back_dead_letter(offset, open);
            self.attempts_changed(offset);
        }
        self.attempts.put_back(attempts);
        letters
    }

    fn attempts_changed(&mut self, offset: u64) {
        self.attempts.changed(offset, self.window.get(offset).is_some_and(Open::needs_row));
    }

    /// Registers to be woken at `when`, unless the cursor is woken earlier anyway. Returns the moment that was
    /// registered before and is replaced; `Err` if nothing changes.
    pub(crate) fn register_wake(&mut self, when: Mono) -> Result<Option<Mono>, ()> {
        match self.wake {
            Some(registered) if registered <= when => Err(()),
            before => {
                self.wake = Some(when);
                Ok(before)
            }
        }
    }

    /// Called when the registered moment has come.
    pub(crate) fn wake(&mut self, now: Mono) -> Woken {
        self.wake = None;
        let expired = self.window.wake(now);
        self.read_ahead.wake(now);
        Woken { expired, flush: self.flush.wake(now) }
    }

    /// When the cursor is registered to be woken.
    pub(crate) fn registered(&self) -> Option<Mono> {
        self.wake
    }

    /// Checks that every offset is in one place and every index true. Returns how many things were looked at.
    pub(crate) fn check(&self, at: CursorRef) -> usize {
        self.read_ahead.check(at, self.window.highest().unwrap_or(0));
        self.window.check(at, self.read_ahead.first().map_or(self.read_ahead.next(), Fetched::offset));
        let unwritten = self.window.iter().filter(|(_, open)| open.needs_row());
        self.attempts.check(at, unwritten.map(|(offset, _)| offset));
        self.flush.check(at, self.committed());
        1 + self.window.len() + self.read_ahead.len()
    }

    /// Returns the earliest moment at which a lease ends, a wait ends, or something must be written or read again.
    pub(crate) fn next_wake(&self) -> Option<Mono> {
        let ends = [self.window.next_wake(), self.flush.next_wake(), self.read_ahead.retry_at()];
        ends.into_iter().flatten().min()
    }
}
