//! How the position of one cursor gets to disk: what is durable, when it is to be written next, the write under way,
//! and the requests that wait for it.

use millrace_model::{CursorRow, Mono, Offset, Timestamp};

use super::open::Open;
use crate::groups::group::CursorRef;
use crate::interface::input::Token;
use crate::interface::reply::ReplyTo;

#[derive(Debug, Default)]
pub(crate) struct FlushState {
    /// The durable commit.
    durable: Offset,
    /// When `durable` was written; `None` if it was written by a version that did not record the time.
    durable_since: Option<Timestamp>,
    /// Something, such as an ack, is to be written as soon as possible.
    requested: bool,
    /// The cursor is to be written by this time: a delivery failed, or offsets were skipped.
    due_at: Option<Mono>,
    under_way: Option<Token>,
    /// The row that was written last, or is being written.
    row: Option<CursorRow>,
    contents: FlushContents,
    /// The store refused the last flush as too large: the next one is not tried before this time.
    refused_until: Option<Mono>,
    /// Set when the store refuses a flush as too large: each flush then takes as little as it can, until nothing is
    /// left.
    small_batches: bool,
    /// Requests that are answered when the next flush is durable.
    confirms: Vec<ReplyTo>,
}

/// Contents of the flush under way, in case the store refuses it. Dropped when the flush is durable, and when the
/// cursor is moved meanwhile.
#[derive(Debug, Default)]
pub(super) struct FlushContents {
    /// Events that become dead letters. They count as done from the moment their letters are being written.
    pub(super) dead_letters: Vec<(u64, Open)>,
    /// Offsets whose rows of attempts are written or deleted.
    pub(super) attempts: Vec<u64>,
}

impl FlushState {
    pub(super) fn at(durable: Offset) -> FlushState {
        FlushState { durable, ..FlushState::default() }
    }

    pub(super) fn restore(row: CursorRow) -> FlushState {
        FlushState {
            durable: row.committed,
            durable_since: row.updated,
            row: Some(row),
            ..FlushState::default()
        }
    }

    /// Returns the state of a cursor that was moved: a flush under way still ends, and the requests still wait.
    pub(super) fn moved(&mut self) -> FlushState {
        FlushState {
            durable: self.durable,
            durable_since: self.durable_since,
            confirms: std::mem::take(&mut self.confirms),
            under_way: self.under_way,
            ..FlushState::default()
        }
    }

    pub(crate) fn durable(&self) -> Offset {
        self.durable
    }

    pub(crate) fn durable_since(&self) -> Option<Timestamp> {
        self.durable_since
    }

    pub(crate) fn set_durable(&mut self, committed: Offset, since: Option<Timestamp>) {
        self.durable = committed;
        self.durable_since = since;
    }

    /// When the commit of the row that was written last was first written.
    pub(crate) fn row_since(&self) -> Option<Timestamp> {
        self.row.as_ref().and_then(|row| row.updated)
    }

    /// Returns when `committed` was first written, which is `now` unless the last row has the same commit.
    pub(super) fn since(&self, committed: Offset, now: Timestamp) -> Option<Timestamp> {
        match &self.row {
            Some(row) if row.committed == committed => row.updated,
            _ => Some(now),
        }
    }

    /// Remembers the row as written. Returns whether it differs from the row before.
    pub(super) fn note_row(&mut self, row: &CursorRow) -> bool {
        let changed = self.row.as_ref() != Some(row);
        self.row = Some(row.clone());
        changed
    }

    /// Asks for a flush as soon as possible. The caller also lists the cursor in the agenda.
    pub(crate) fn request(&mut self) {
        self.requested = true;
    }

    pub(crate) fn set_requested(&mut self, requested: bool) {
        self.requested = requested;
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.requested
    }

    /// Asks for a flush at `when` unless one is due anyway. Returns when it is due.
    pub(crate) fn request_by(&mut self, when: Mono) -> Mono {
        *self.due_at.get_or_insert(when)
    }

    pub(crate) fn due_at(&self) -> Option<Mono> {
        self.due_at
    }

    pub(super) fn clear_due(&mut self) {
        self.due_at = None;
    }

    /// Whether the next flush has to wait: for the one under way, or after a refusal.
    pub(crate) fn must_wait(&self, now: Mono) -> bool {
        self.under_way.is_some() || self.refused_until.is_some_and(|until| until > now)
    }

    pub(crate) fn begin(&mut self, token: Token) {
        self.under_way = Some(token);
    }

    /// Ends the flush under way: its contents are durable.
    pub(super) fn end(&mut self, more: bool) {
        self.under_way = None;
        self.contents = FlushContents::default();
        self.small_batches &= more;
    }

    /// Ends the flush under way: the store refused it as too large. Returns its contents, which are to be put back.
    pub(super) fn refused(&mut self, until: Mono) -> FlushContents {
        self.under_way = None;
        self.requested = true;
        self.small_batches = true;
        self.refused_until = Some(until);
        self.row = None;
        std::mem::take(&mut self.contents)
    }

    pub(super) fn contents_mut(&mut self) -> &mut FlushContents {
        &mut self.contents
    }

    pub(crate) fn in_small_batches(&self) -> bool {
        self.small_batches
    }

    /// Answers a request when the next flush is durable.
    pub(crate) fn confirm(&mut self, to: ReplyTo) {
        self.confirms.push(to);
    }

    pub(crate) fn confirms(&self) -> &[ReplyTo] {
        &self.confirms
    }

    pub(crate) fn take_confirms(&mut self) -> Vec<ReplyTo> {
        std::mem::take(&mut self.confirms)
    }

    /// Requests the flush that is due, and ends the pause after a refusal. Returns whether a flush was due.
    pub(super) fn wake(&mut self, now: Mono) -> bool {
        self.refused_until = self.refused_until.filter(|at| *at > now);
        let due = self.due_at.is_some_and(|at| at <= now);
        if due {
            self.due_at = None;
            self.requested = true;
        }
        due
    }

    /// The flush under way.
    pub(crate) fn token(&self) -> Option<Token> {
        self.under_way
    }

    /// Checks that the commit is not behind the row that was written last: only a seek moves it back.
    pub(super) fn check(&self, at: CursorRef, committed: Offset) {
        let written = self.row.as_ref().map(|row| row.committed);
        assert!(
            written.is_none_or(|written| written <= committed),
            "{at:?} fell back from {written:?} to {committed}"
        );
    }

    pub(super) fn next_wake(&self) -> Option<Mono> {
        let due = self.due_at.filter(|_| self.under_way.is_none());
        due.into_iter().chain(self.refused_until).min()
    }
}
