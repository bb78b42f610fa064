//! Elapsed time: the clock for durations that outlive the process.
//!
//! Elapsed time looks like wall time, advances with the monotonic clock whatever the wall clock does, and never
//! decreases. A row stores its last value ([`ElapsedRow`]), so that after a restart of the process it goes on with the
//! time that the process was away added. While the machine keeps running, its uptime tells that time exactly
//! ([`BootMark`]); after a restart of the machine only the wall clock does. A step of the wall clock separates elapsed
//! time from wall time for good, which does no harm: only durations are stored in elapsed time.
//!
//! All processes of a store share one elapsed time for delayed events through the row at [`keys::ELAPSED`]
//! ([`Elapsed`]): the row says how far elapsed time is from wall time, and each process goes on from there. As long as
//! nothing has changed that distance, the row is rewritten with the same distance, so that restarts do not add to it.
//!
//! [`BootMark`]: crate::BootMark

use crate::clocks::boot::Boot;
use crate::clocks::steady::CLOCK_STEP_MS;
use crate::clocks::time::{Mono, Now, TICK_MS, Timestamp};
use crate::rows::batch::{Op, Space};
use crate::rows::record::{ElapsedRow, keys};

/// How far the elapsed times of two processes that agree on the wall time can be apart: both are told whole
/// milliseconds, and each starts a tick or two behind the row it read.
pub const ELAPSED_APART_MS: u64 = 3 * TICK_MS;

#[derive(Clone, Copy, Debug, Default)]
pub struct ElapsedTime {
    start: Timestamp,
    started: Now,
    boot: Option<Boot>,
    /// The row as it was written last, or read.
    written: Option<ElapsedRow>,
    /// Since when the current wall time is believed: since the start, or since the last step that was followed.
    believed_since: Mono,
}

impl ElapsedTime {
    /// Continues the elapsed time of earlier processes. `row` is the last row they wrote; `boot` is the machine's
    /// current boot, if the system can tell.
    pub fn restore(row: Option<ElapsedRow>, boot: Option<Boot>, now: Now) -> ElapsedTime {
        let start = row.map_or(now.wall, |row| row.elapsed + away_ms(&row, boot, now));
        ElapsedTime { start, started: now, boot, written: row, believed_since: now.mono }
    }

    pub fn at(&self, now: Now) -> Timestamp {
        self.start + now.mono.0.saturating_sub(self.started.mono.0)
    }

    /// Returns the row that belongs into every batch that stores a duration.
    pub fn write(&mut self, now: Now) -> ElapsedRow {
        self.write_as(self.at(now), now)
    }

    /// Like `write`, for a row that several processes share: the row keeps its distance to the wall time, so that a
    /// process that starts a tick behind does not move it.
    fn write_shared(&mut self, now: Now) -> ElapsedRow {
        self.write_as(self.of_row(now).unwrap_or_else(|| self.at(now)), now)
    }

    /// Returns the elapsed time according to the row, unless it differs from this process's by more than
    /// [`ELAPSED_APART_MS`].
    fn of_row(&self, now: Now) -> Option<Timestamp> {
        let (at, by_row) = (self.at(now), self.written.map(|row| row.at(now.wall)));
        by_row.filter(|by_row| by_row.0.abs_diff(at.0) <= ELAPSED_APART_MS)
    }

    fn write_as(&mut self, elapsed: Timestamp, now: Now) -> ElapsedRow {
        if self.has_stepped(now) {
            self.believed_since = now.mono;
        }
        let boot = self.boot.map(|boot| boot.mark(now.mono));
        let row = ElapsedRow { elapsed, wall: now.wall, boot, in_doubt: self.is_doubted(now) };
        self.written = Some(row);
        row
    }

    /// Takes notice of a row that another process has written. That process may be behind, because it lived through a
    /// small correction of the wall clock that this process did not see. Then this process continues from the row: its
    /// own durations end late by the difference, and no duration ends early. A larger difference is a step of the clock
    /// that one of the two has not followed yet, and is ignored.
    pub fn meet(&mut self, row: ElapsedRow, now: Now) {
        // There are stored durations that this process has not written: from now on it keeps the row up to date, too.
        self.written.get_or_insert(row);
        let behind_ms = self.at(now).0.saturating_sub(row.at(now.wall).0);
        if behind_ms > ELAPSED_APART_MS && behind_ms <= CLOCK_STEP_MS {
            *self = ElapsedTime::restore(Some(row), self.boot, now);
        }
    }

    /// Whether the row must be written again, because the wall time has stepped since, or the doubt about it has
    /// changed. Otherwise a restart of the machine would misjudge how long durations have been waiting.
    pub fn is_outdated(&self, now: Now) -> bool {
        self.written.is_some_and(|row| self.has_stepped(now) || row.in_doubt != self.is_doubted(now))
    }

    fn has_stepped(&self, now: Now) -> bool {
        self.written.is_some_and(|row| row.at(now.wall).0.abs_diff(self.at(now).0) > CLOCK_STEP_MS)
    }

    /// Whether the system's wall clock shows another time than `now.wall`, and it is not known which of the two is
    /// right. The doubt ends when the wall time follows the step.
    fn is_doubted(&self, now: Now) -> bool {
        now.steady_since == now.mono && now.mono > self.believed_since && !self.has_stepped(now)
    }
}

/// The elapsed time for the delays of events, shared by the server and by sessions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Elapsed {
    time: ElapsedTime,
}

impl Elapsed {
    pub fn restore(row: Option<ElapsedRow>, boot: Option<Boot>, now: Now) -> Elapsed {
        Elapsed { time: ElapsedTime::restore(row, boot, now) }
    }

    pub fn at(&self, now: Now) -> Timestamp {
        self.time.at(now)
    }

    /// Returns `now` with elapsed time in the place of wall time.
    pub fn instead_of_wall(&self, now: Now) -> Now {
        Now { wall: self.at(now), ..now }
    }

    /// Returns the operation that belongs into every batch that stores a delay: it writes the row.
    pub fn put(&mut self, now: Now) -> Op {
        let value = self.time.write_shared(now).encode();
        Op::Put { space: Space::Kv, key: keys::ELAPSED.to_owned(), value }
    }

    /// Returns the time from which a delay that begins now is counted: the later one of this process's elapsed time and
    /// the row's, from which the next process goes on. So no process ends the delay early.
    pub fn begin_delay(&self, now: Now) -> Timestamp {
        self.at(now).max(self.time.of_row(now).unwrap_or_default())
    }

    /// See [`ElapsedTime::meet`].
    pub fn meet(&mut self, row: ElapsedRow, now: Now) {
        self.time.meet(row, now);
    }

    /// See [`ElapsedTime::is_outdated`].
    pub fn is_outdated(&self, now: Now) -> bool {
        self.time.is_outdated(now)
    }
}

impl ElapsedRow {
    /// Returns the elapsed time when the wall clock shows `wall`, if there was no step in between.
    pub fn at(&self, wall: Timestamp) -> Timestamp {
        Timestamp(wall.0.saturating_add(self.elapsed.0).saturating_sub(self.wall.0))
    }
}

/// Returns how much time has passed since the row was written, never more than really has: a duration must not end
/// early.
fn away_ms(row: &ElapsedRow, boot: Option<Boot>, now: Now) -> u64 {
    let by_machine = boot.zip(row.boot).and_then(|(boot, then)| boot.mark(now.mono).since(&then));
    by_machine.unwrap_or_else(|| match row.in_doubt {
        // The stored wall time may be wrong by hours, and nobody knows by how much.
        true => 0,
        // Both times are whole milliseconds, so the true difference may be up to one millisecond less. A wall clock
        // that has gone back says nothing about the time away.
        false => now.wall.0.saturating_sub(row.wall.0).saturating_sub(TICK_MS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clocks::boot::BootId;

    const HOUR: u64 = 3_600_000;
    const START: u64 = 1_750_000_000_000;

    fn now(mono: u64, wall: u64) -> Now {
        Now { mono: Mono(mono), wall: Timestamp(wall), steady_since: Mono(0) }
    }

    fn boot(id: u128, up_at_zero_ms: u64) -> Option<Boot> {
        Some(Boot { id: BootId(id), up_at_zero_ms })
    }

    #[test]
    fn while_the_machine_runs_its_own_clock_says_how_long_the_process_was_away() {
        for wall in [START, START + 3 * HOUR, START - 3 * HOUR] {
            let mut first = ElapsedTime::restore(None, boot(1, 100), now(0, START));
            let row = first.write(now(50, START + 50));
            let second = ElapsedTime::restore(Some(row), boot(1, 2_150), now(0, wall));
            assert_eq!(second.at(now(0, wall)), Timestamp(START + 50 + 2_000 - 2));
            assert_eq!(second.at(now(10, wall)), Timestamp(START + 60 + 2_000 - 2));
        }
    }

    #[test]
    fn after_a_restart_of_the_machine_the_wall_clock_says_it() {
        let mut first = ElapsedTime::restore(None, boot(1, 100), now(0, START));
        let row = first.write(now(50, START + 50));
        for boot in [boot(2, 7), None] {
            let later = now(0, START + 50 + HOUR);
            assert_eq!(
                ElapsedTime::restore(Some(row), boot, later).at(later),
                Timestamp(START + 50 + HOUR - 1)
            );
            let less = now(0, START - HOUR);
            assert_eq!(ElapsedTime::restore(Some(row), boot, less).at(less), Timestamp(START + 50));
        }
    }

    /// The clock was three hours behind, and the machine failed within the settling time after the clock was corrected.
    #[test]
    fn a_wall_clock_in_doubt_says_nothing() {
        let mut first = ElapsedTime::restore(None, boot(1, 100), now(0, START));
        first.write(now(50, START + 50));
        assert!(!first.is_outdated(now(60, START + 60)));
        let doubted = Now { steady_since: Mono(60), ..now(60, START + 60) };
        assert!(first.is_outdated(doubted));
        let row = first.write(doubted);
        assert!(!first.is_outdated(Now { mono: Mono(61), steady_since: Mono(61), ..doubted }));
        let later = now(0, START + 3 * HOUR);
        assert_eq!(ElapsedTime::restore(Some(row), boot(2, 7), later).at(later), Timestamp(START + 60));
        // The clock's step is believed, or the clock has gone back: the row can be trusted again.
        for settled in [now(600_000, START + 600_000), now(600_000, START + 3 * HOUR + 600_000)] {
            let mut first = first;
            assert!(first.is_outdated(settled));
            assert!(!first.write(settled).in_doubt);
        }
    }

    fn row(op: &Op) -> ElapsedRow {
        let Op::Put { key, value, .. } = op else { panic!("{op:?}") };
        ElapsedRow::decode(key, value).unwrap()
    }

    #[test]
    fn no_restart_adds_to_the_distance() {
        for boots in [false, true] {
            let boot = |wall: u64| if boots { boot(1, wall) } else { None };
            let begin = now(5, 1_000_000);
            let mut written = row(&Elapsed::restore(None, boot(999_995), begin).put(begin));
            for n in 1..1000 {
                let wall = 1_000_000 + n * 10;
                let mut next = Elapsed::restore(Some(written), boot(wall), now(0, wall));
                // The milliseconds of the two clocks begin at different moments.
                written = row(&next.put(now(2, wall + 2 + n % 2)));
                assert_eq!(written.elapsed, written.wall);
            }
        }
    }

    /// A process that started behind the row counts a delay from the row's time, because the next process goes on from
    /// there.
    #[test]
    fn a_delay_is_not_early_for_the_process_that_ends_it() {
        let begin = now(0, 1_000_000);
        let first = row(&Elapsed::restore(None, boot(1, 0), begin).put(begin));
        let mut second = Elapsed::restore(Some(first), boot(1, 1_000), now(0, 1_001_000));
        assert_eq!(second.at(now(0, 1_001_000)).0, 1_000_998, "two ticks behind");
        let shared = row(&second.put(now(0, 1_001_000)));
        let due = second.begin_delay(now(0, 1_001_000)) + 500;
        let third = Elapsed::restore(Some(shared), boot(1, 1_100), now(0, 1_001_100));
        // 400 ms are left after the 100 ms that passed in between.
        assert!(third.at(now(399, 1_001_499)) < due);
        assert!(third.at(now(402, 1_001_502)) >= due);
    }

    #[test]
    fn of_two_that_are_a_small_correction_apart_the_one_behind_counts() {
        let mut old = Elapsed::restore(None, None, now(0, 1_000_000));
        let before = row(&old.put(now(0, 1_000_000)));
        // The wall clock is corrected by five seconds, then another process starts.
        let mut young = Elapsed::restore(Some(before), None, now(0, 1_005_010));
        assert_eq!(young.at(now(0, 1_005_010)).0, 1_005_009);
        let after = row(&old.put(now(20, 1_005_020)));
        assert_eq!(after.elapsed.0, 1_000_020);
        young.meet(after, now(10, 1_005_020));
        assert!(young.at(now(10, 1_005_020)).0.abs_diff(1_000_020) <= ELAPSED_APART_MS);
        old.meet(row(&young.put(now(20, 1_005_030))), now(30, 1_005_030));
        assert_eq!(old.at(now(30, 1_005_030)).0, 1_000_030, "it needs nothing");
        // A difference of two hours is a step: the row is ignored.
        let set_back = ElapsedRow { wall: Timestamp(9_000_000), ..before };
        young.meet(set_back, now(20, 1_005_030));
        assert!(young.at(now(30, 1_005_040)).0.abs_diff(1_000_040) <= ELAPSED_APART_MS);
    }
}
