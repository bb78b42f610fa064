//! Keeps the time that ages of events are counted from over restarts, in the row [`keys::AGES`]: see [`AgeGuard`].
//!
//! The row is written at the start, before this server stores an event with a time of its own clock; then at intervals,
//! if something else was committed since and some topic removes events by age; and at the stop. If a server is killed,
//! the time since its last row is lost, which makes all events seem younger than they are.
//!
//! [`AgeGuard`]: millrace_model::AgeGuard

use millrace_model::{AgeGuard, AgesRow, Boot, Mono, Now, Op, Space, Timestamp, keys};

use crate::bus::Bus;
use crate::interface::note::Note;
use crate::lifecycle::pending::PendingEffect;

const WRITE_INTERVAL_MS: u64 = 600_000;

/// At the start, a wall clock that is further ahead of the time that ages are counted from is reported
/// ([`Note::ClockAhead`]).
const TOLD_FROM_MS: u64 = 24 * 3_600_000;

#[derive(Debug)]
pub(crate) struct Ages {
    guard: AgeGuard,
    boot: Option<Boot>,
    /// When the row was written last.
    written: Mono,
    /// Something other than the row was committed since it was written.
    has_commits: bool,
}

impl Ages {
    pub(crate) fn new(settle_ms: u64) -> Ages {
        Ages { guard: AgeGuard::new(settle_ms), boot: None, written: Mono::default(), has_commits: false }
    }

    pub(crate) fn tell(&mut self, now: Now) {
        self.guard.tell(now);
    }

    /// Whether the wall clock can be trusted to tell that something is older than `age_ms`.
    pub(crate) fn believes(&self, now: Now, age_ms: u64) -> bool {
        self.guard.believes(now, age_ms)
    }

    /// The time that ages are counted from.
    pub(crate) fn latest(&self, now: Now) -> Timestamp {
        self.guard.latest(now)
    }

    pub(crate) fn note_commit(&mut self) {
        self.has_commits = true;
    }

    fn is_outdated(&self, now: Now) -> bool {
        self.has_commits && now.mono.0.saturating_sub(self.written.0) >= WRITE_INTERVAL_MS
    }
}

impl Bus {
    pub(crate) fn restore_ages(
        &mut self,
        row: Option<AgesRow>,
        newest: Option<Timestamp>,
        boot: Option<Boot>,
        now: Now,
    ) {
        self.ages.boot = boot;
        self.ages.guard.found(row, newest, boot, now);
        let (by_ms, believed_in_ms) = self.ages.guard.behind(now);
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
        if self.ages.is_outdated(now) && self.removes_by_age() {
            self.write_ages(now);
        }
    }

    fn removes_by_age(&self) -> bool {
        self.retention.wake().is_some() || self.compaction.wake().is_some()
    }

    pub(crate) fn write_last_ages(&mut self, now: Now) {
        if self.removes_by_age() && self.lifecycle.failed().is_none() && !self.lifecycle.is_stopping() {
            self.write_ages(now);
        }
    }

    fn write_ages(&mut self, now: Now) {
        let Some(row) = self.ages.guard.row(self.ages.boot, now) else { return };
        let op = Op::Put { space: Space::Kv, key: keys::AGES.to_owned(), value: row.encode() };
        self.commit(now, self.limits.durability, vec![op], PendingEffect::Row);
        self.ages.written = now.mono;
        self.ages.has_commits = false;
    }
}
