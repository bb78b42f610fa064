//! Keeps the time that ages of events are counted from over restarts, in the row [`keys::AGES`]: see [`AgeGuard`].
//!
//! The row is written at the start, before this server stores an event with a time of its own clock; then at intervals,
//! if something else was committed since and some topic removes events by age; and at the stop. If a server is killed,
//! the time since its last row is lost, which makes all events seem younger than they are.
//!
//! [`AgeGuard`]: millrace_model::AgeGuard

use millrace_model::{AgesRow, Boot, Mono, Now, Op, Space, Timestamp, keys};

use crate::bus::Bus;
use crate::interface::note::Note;
use crate::lifecycle::pending::Pending;

const WRITE_INTERVAL_MS: u64 = 600_000;

/// At the start, a wall clock that is further ahead of the time that ages are counted from is reported
/// ([`Note::ClockAhead`]).
const TOLD_FROM_MS: u64 = 24 * 3_600_000;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AgesRowState {
    boot: Option<Boot>,
    written: Mono,
    /// Something other than this row was committed since it was written.
    pub(crate) has_commits: bool,
}

impl Bus {
    pub(crate) fn restore_ages(
        &mut self,
        row: Option<AgesRow>,
        newest: Option<Timestamp>,
        boot: Option<Boot>,
        now: Now,
    ) {
        self.ages_row.boot = boot;
        self.ages.found(row, newest, boot, now);
        let (by_ms, believed_in_ms) = self.ages.behind(now);
        if by_ms > TOLD_FROM_MS {
            self.note(Note::ClockAhead { by_ms, believed_in_ms });
        }
        // Written before any event with a time of this clock. A store without events and without the row has nothing to
        // protect.
        if row.is_some() || newest.is_some() {
            self.write_ages(now);
        }
    }

    pub(crate) fn keep_ages(&mut self, now: Now) {
        let AgesRowState { written, has_commits, .. } = self.ages_row;
        let is_old = now.mono.0.saturating_sub(written.0) >= WRITE_INTERVAL_MS;
        if is_old && has_commits && self.removes_by_age() {
            self.write_ages(now);
        }
    }

    fn removes_by_age(&self) -> bool {
        self.retention.wake.is_some() || self.compaction.wake.is_some()
    }

    pub(crate) fn write_last_ages(&mut self, now: Now) {
        if self.removes_by_age() && self.failed.is_none() && !self.stopping {
            self.write_ages(now);
        }
    }

    fn write_ages(&mut self, now: Now) {
        let Some(row) = self.ages.row(self.ages_row.boot, now) else { return };
        let op = Op::Put { space: Space::Kv, key: keys::AGES.to_owned(), value: row.encode() };
        self.commit(now, self.limits.durability, vec![op], Pending::Row);
        self.ages_row = AgesRowState { written: now.mono, has_commits: false, ..self.ages_row };
    }
}
