//! A wall clock that does not believe every step of the system's clock.
//!
//! The system's wall clock may be wrong for a second, be set by hand, or show 1970 until the network sets it. Decisions
//! by this clock cannot be undone: an event that retention removed is gone, a time that was written into a stream
//! stays. So shells read the clock through a [`SteadyClock`], and engines ask an [`AgeGuard`] before they remove
//! anything because of its age.

use crate::clocks::boot::Boot;
use crate::clocks::time::{Mono, Now, Timestamp};
use crate::rows::record::AgesRow;

/// A wall clock that differs from what the monotonic clock predicts by more than this has stepped. A smaller difference
/// is followed at once: that is how a clock that runs slightly too fast or slow is corrected.
pub const CLOCK_STEP_MS: u64 = 60_000;

/// How long a step must last until it is believed, unless a setting says otherwise.
pub const CLOCK_SETTLE_MS: u64 = 600_000;

/// 2020-01-01. A clock that shows an earlier time has not been set since the machine was switched on; when it is set,
/// the new time is believed at once.
const UNSET_BEFORE: Timestamp = Timestamp(1_577_836_800_000);

/// For every settling time during which the wall clock was steady, the anchor of the next process (see [`AgeGuard`])
/// may come this much closer to the wall clock.
const CATCH_UP_MS: u64 = 3_600_000;

/// A wall clock that has been steady for this many settling times (a week, unless a setting says otherwise) is trusted
/// completely.
const CATCH_UP_SETTLES_MAX: u64 = 1_008;

/// Turns readings of the system's clocks into [`Now`]: the wall time goes on with the monotonic clock when the system's
/// wall clock steps, and follows the step once it has lasted for the settling time.
#[derive(Clone, Debug)]
pub struct SteadyClock {
    settle_ms: u64,
    /// The believed wall time minus the monotonic time. `None` before the first reading.
    lead_ms: Option<i64>,
    doubt: Option<Doubt>,
    /// Since when the wall clock has shown what is expected.
    steady_since: Mono,
}

/// A step that has not lasted long enough to be believed.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    lead_ms: i64,
    since: Mono,
}

/// News about the system's wall clock, found by a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockNews {
    /// The clock stepped; the step is not believed yet.
    Stepped { by_ms: i64 },
    /// The clock shows the expected time again, before the step was believed.
    Returned,
    /// The step is believed: the wall time of [`Now`] has just changed by this much. `doubted` if `Stepped` was
    /// reported before.
    Followed { by_ms: i64, doubted: bool },
}

impl SteadyClock {
    /// A settling time of zero believes every step at once.
    pub fn new(settle_ms: u64) -> SteadyClock {
        SteadyClock { settle_ms, lead_ms: None, doubt: None, steady_since: Mono(0) }
    }

    /// Takes a reading. `mono` must never decrease; `shown` is what the system's wall clock shows.
    pub fn tell(&mut self, mono: Mono, shown: Timestamp) -> (Now, Option<ClockNews>) {
        let shown_lead_ms = signed(shown.0) - signed(mono.0);
        let news = match self.lead_ms {
            Some(lead_ms) => self.compare(mono, lead_ms, shown_lead_ms),
            None => {
                self.lead_ms = Some(shown_lead_ms);
                self.steady_since = mono;
                None
            }
        };
        let wall = wall_at(mono, self.lead_ms.unwrap_or(shown_lead_ms));
        let steady_since = if self.doubt.is_some() { mono } else { self.steady_since };
        (Now { mono, wall, steady_since }, news)
    }

    fn compare(&mut self, mono: Mono, lead_ms: i64, shown_lead_ms: i64) -> Option<ClockNews> {
        let by_ms = shown_lead_ms - lead_ms;
        if !is_step(by_ms) {
            self.lead_ms = Some(shown_lead_ms);
            return self.doubt.take().map(|_| {
                self.steady_since = mono;
                ClockNews::Returned
            });
        }
        let is_set_first = is_set_first(wall_at(mono, lead_ms), wall_at(mono, shown_lead_ms));
        let since = match self.doubt.filter(|doubt| !is_step(shown_lead_ms - doubt.lead_ms)) {
            Some(doubt) => doubt.since,
            None => mono,
        };
        if is_set_first || mono.0.saturating_sub(since.0) >= self.settle_ms {
            self.lead_ms = Some(shown_lead_ms);
            self.steady_since = mono;
            let doubted = self.doubt.take().is_some();
            return Some(ClockNews::Followed { by_ms, doubted });
        }
        let is_new = since == mono && self.doubt.is_none_or(|doubt| doubt.since != mono);
        self.doubt = Some(Doubt { lead_ms: shown_lead_ms, since });
        is_new.then_some(ClockNews::Stepped { by_ms })
    }
}

/// Decides from which time the ages of events are counted, and whether events may be removed by age. An engine that
/// does so owns a guard and tells it every [`Now`].
///
/// Ages are not counted from the wall clock: a clock that was wrong before the process started shows no step, however
/// long it is watched. They are counted from an *anchor*, a time that advances with the monotonic clock and is stored
/// ([`AgesRow`]), so that the next process continues from there. The time between two processes is added by the
/// machine's uptime; if the machine was restarted, none is added. An anchor that is behind the wall clock catches up
/// with it slowly, from process to process ([`CATCH_UP_MS`]). So two starts with a wrong clock, or twenty short ones,
/// make no event old; and after the machine really was off for long, no event is kept for ever.
#[derive(Clone, Debug)]
pub struct AgeGuard {
    settle_ms: u64,
    last: Option<Now>,
    /// When the wall time last stepped: timestamps written before that are of another clock.
    changed: Option<Mono>,
    /// The anchor at the last [`AgeGuard::tell`]. `None` until the store was read.
    anchor: Option<Timestamp>,
    /// For how many settling times the wall clock has been steady now, and was steady before its last step.
    settles: u64,
    settles_before: u64,
}

impl AgeGuard {
    pub fn new(settle_ms: u64) -> AgeGuard {
        AgeGuard { settle_ms, last: None, changed: None, anchor: None, settles: 0, settles_before: 0 }
    }

    pub fn tell(&mut self, now: Now) {
        let moved_ms = |last: &Now| {
            (signed(now.wall.0) - signed(last.wall.0)) - (signed(now.mono.0) - signed(last.mono.0))
        };
        if self.last.as_ref().map(moved_ms).is_some_and(is_step) {
            self.changed = Some(now.mono);
        }
        self.anchor = self.anchor_at(now);
        let settles = steady_ms(now).checked_div(self.settle_ms).unwrap_or(CATCH_UP_SETTLES_MAX);
        if settles < self.settles {
            self.settles_before += self.settles;
        }
        self.settles = settles;
        // The wall clock is believed. If it shows less than the anchor, the anchor came from a clock that was ahead.
        if settles > 0 {
            self.anchor = self.anchor.map(|anchor| anchor.min(now.wall));
        }
        self.last = Some(now);
    }

    /// Sets the anchor from the store, before this process writes times of its own. `row` is the last row of an earlier
    /// process; without it, as in a store of an older version, the anchor is `newest`, the newest time of an event of
    /// users.
    pub fn found(&mut self, row: Option<AgesRow>, newest: Option<Timestamp>, boot: Option<Boot>, now: Now) {
        let by_row = row.map(|row| {
            let away_ms = boot.zip(row.boot).and_then(|(boot, then)| boot.mark(now.mono).since(&then));
            row.latest + away_ms.unwrap_or(0)
        });
        let anchor = by_row.or(newest).unwrap_or(now.wall);
        self.anchor = Some(if is_set_first(anchor, now.wall) { now.wall } else { anchor });
        self.last = Some(now);
    }

    /// Returns the row from which the next process continues. `None` until the store was read.
    pub fn row(&self, boot: Option<Boot>, now: Now) -> Option<AgesRow> {
        let anchor = self.anchor_at(now)?;
        let caught_up = match self.settles >= CATCH_UP_SETTLES_MAX {
            true => now.wall,
            false => anchor + (self.settles_before + self.settles).saturating_mul(CATCH_UP_MS),
        };
        let latest = anchor.max(caught_up.min(now.wall));
        Some(AgesRow { latest, boot: boot.map(|boot| boot.mark(now.mono)) })
    }

    /// Returns the time that ages are counted from: the anchor, but never more than the wall clock shows.
    pub fn latest(&self, now: Now) -> Timestamp {
        self.anchor_at(now).map_or(now.wall, |anchor| anchor.min(now.wall))
    }

    /// Returns by how much the wall clock is ahead of the time that ages are counted from, and for how long the wall
    /// clock must be steady until a process that then starts counts from the wall clock; both in milliseconds.
    pub fn behind(&self, now: Now) -> (u64, u64) {
        let behind_ms = now.wall.0.saturating_sub(self.latest(now).0);
        let settles = behind_ms.div_ceil(CATCH_UP_MS).min(CATCH_UP_SETTLES_MAX);
        (behind_ms, settles.saturating_mul(self.settle_ms))
    }

    fn anchor_at(&self, now: Now) -> Option<Timestamp> {
        let passed_ms = self.last.map_or(0, |last| now.mono.0.saturating_sub(last.mono.0));
        self.anchor.map(|anchor| anchor + passed_ms)
    }

    /// Whether an event that is `age_ms` old by its timestamp can be believed to be that old: the wall clock has been
    /// steady for the settling time, and everything this process wrote before the last step of the wall time is at
    /// least that old. An age of 0 needs no clock.
    pub fn believes(&self, now: Now, age_ms: u64) -> bool {
        let old_enough = |changed: Mono| now.mono.0.saturating_sub(changed.0) >= age_ms;
        age_ms == 0 || steady_ms(now) >= self.settle_ms && self.changed.is_none_or(old_enough)
    }
}

/// Whether a clock that showed `before` had not been set, and shows `after` because it now has.
fn is_set_first(before: Timestamp, after: Timestamp) -> bool {
    before < UNSET_BEFORE && after >= UNSET_BEFORE
}

/// Returns for how long the wall clock has shown the expected time.
fn steady_ms(now: Now) -> u64 {
    now.mono.0.saturating_sub(now.steady_since.0)
}

fn is_step(by_ms: i64) -> bool {
    by_ms.unsigned_abs() > CLOCK_STEP_MS
}

/// Converts to `i64`. Clamped, although no clock gets that far.
fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

fn wall_at(mono: Mono, lead_ms: i64) -> Timestamp {
    Timestamp(mono.0.saturating_add_signed(lead_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_750_000_000_000;
    const DAY: i64 = 24 * 3600 * 1000;
    const SETTLE: u64 = 600_000;

    struct Told {
        clock: SteadyClock,
        mono: u64,
        off_ms: i64,
    }

    impl Told {
        fn new() -> Told {
            let mut told = Told { clock: SteadyClock::new(SETTLE), mono: 0, off_ms: 0 };
            told.after(0);
            told
        }

        fn after(&mut self, ms: u64) -> (Now, Option<ClockNews>) {
            self.mono += ms;
            let shown = (START + self.mono).saturating_add_signed(self.off_ms);
            self.clock.tell(Mono(self.mono), Timestamp(shown))
        }

        fn is_on_time(&self, now: Now) -> bool {
            now.wall == Timestamp(START + self.mono)
        }
    }

    #[test]
    fn a_wrong_second_changes_nothing_but_the_trust() {
        for off in [2 * DAY, 31 * DAY, -2 * DAY, -3 * 3_600_000] {
            let mut told = Told::new();
            told.after(SETTLE);
            told.off_ms = off;
            let (now, news) = told.after(500);
            assert!(told.is_on_time(now), "{off}");
            assert_eq!((news, now.steady_since), (Some(ClockNews::Stepped { by_ms: off }), now.mono));
            let (now, news) = told.after(500);
            assert!(told.is_on_time(now) && news.is_none() && now.steady_since == now.mono);
            told.off_ms = 0;
            let (now, news) = told.after(1);
            assert!(told.is_on_time(now));
            assert_eq!((news, now.steady_since), (Some(ClockNews::Returned), now.mono));
            let (later, _) = told.after(SETTLE);
            assert_eq!(later.steady_since, now.mono);
        }
    }

    #[test]
    fn a_step_that_lasts_is_followed() {
        let mut told = Told::new();
        told.off_ms = 2 * DAY;
        told.after(1);
        let (now, news) = told.after(SETTLE - 1);
        assert!(told.is_on_time(now) && news.is_none());
        let (now, news) = told.after(1);
        assert_eq!(news, Some(ClockNews::Followed { by_ms: 2 * DAY, doubted: true }));
        assert_eq!(now.wall, Timestamp((START + told.mono).saturating_add_signed(2 * DAY)));
        assert_eq!(told.after(1).1, None);
    }

    #[test]
    fn a_step_that_changes_again_starts_over() {
        let mut told = Told::new();
        for days in 1..5 {
            told.off_ms = days * DAY;
            let (now, news) = told.after(SETTLE / 2 + 1);
            assert!(told.is_on_time(now));
            assert_eq!(news, Some(ClockNews::Stepped { by_ms: days * DAY }));
        }
    }

    #[test]
    fn small_corrections_are_followed_at_once_and_are_no_news() {
        let mut told = Told::new();
        told.off_ms = -60_000;
        let (now, news) = told.after(10);
        assert_eq!((now.wall, news), (Timestamp(START + 10 - 60_000), None));
        assert_eq!(now.steady_since, Mono(0));
    }

    #[test]
    fn a_clock_that_was_never_set_is_believed_when_it_is() {
        let mut clock = SteadyClock::new(SETTLE);
        let (booted, _) = clock.tell(Mono(0), Timestamp(7000));
        assert_eq!(booted.wall, Timestamp(7000));
        let (now, news) = clock.tell(Mono(10), Timestamp(START));
        assert_eq!((now.wall, now.steady_since), (Timestamp(START), Mono(10)));
        assert!(matches!(news, Some(ClockNews::Followed { .. })));
        // A step from a set clock back to an unset one is not believed.
        let (now, news) = clock.tell(Mono(20), Timestamp(7000));
        assert_eq!(now.wall, Timestamp(START + 10));
        assert!(matches!(news, Some(ClockNews::Stepped { .. })));
    }

    #[test]
    fn without_a_settling_time_every_step_is_believed() {
        let mut clock = SteadyClock::new(0);
        clock.tell(Mono(0), Timestamp(START));
        let (now, news) = clock.tell(Mono(1), Timestamp(START * 2));
        assert_eq!(
            (now.wall, news),
            (Timestamp(START * 2), Some(ClockNews::Followed { by_ms: START as i64 - 1, doubted: false }))
        );
    }

    #[test]
    fn ages_are_believed_when_the_clock_has_settled() {
        let (mut told, mut guard) = (Told::new(), AgeGuard::new(SETTLE));
        let mut after = |told: &mut Told, ms| {
            let (now, _) = told.after(ms);
            guard.tell(now);
            guard.believes(now, DAY as u64)
        };
        assert!(!after(&mut told, SETTLE - 1));
        assert!(after(&mut told, 1));
        told.off_ms = 2 * DAY;
        assert!(!after(&mut told, 1));
        told.off_ms = 0;
        assert!(!after(&mut told, SETTLE - 2));
        assert!(!after(&mut told, 1));
        assert!(after(&mut told, SETTLE));
    }

    const HOUR: u64 = 3_600_000;

    /// Simulates a process that starts with a clock that is off by `off_ms` and runs for `ms`. Returns the row it
    /// leaves behind, and the time that it counted ages from at the end.
    fn life(row: Option<AgesRow>, boot: Option<Boot>, off_ms: u64, ms: u64) -> (Option<AgesRow>, Timestamp) {
        let mut guard = AgeGuard::new(SETTLE);
        let at =
            |mono| Now { mono: Mono(mono), wall: Timestamp(START + off_ms + mono), steady_since: Mono(0) };
        guard.tell(at(0));
        guard.found(row, Some(Timestamp(START)), boot, at(0));
        for mono in (0..=ms).step_by(10_000) {
            guard.tell(at(mono));
        }
        (guard.row(boot, at(ms)), guard.latest(at(ms)))
    }

    #[test]
    fn starts_with_a_wrong_clock_make_nothing_old() {
        let (mut row, mut latest, days) = (None, Timestamp(0), 2 * DAY as u64);
        for boot in 0..10 {
            let boot = Some(Boot { id: crate::BootId(boot), up_at_zero_ms: 0 });
            (row, latest) = life(row, boot, days, SETTLE - 1);
        }
        assert_eq!(latest, Timestamp(START + 10 * (SETTLE - 1)));
        // However often it starts, ages advance by an hour for every settling time before the last start.
        for _ in 0..10 {
            (row, latest) = life(row, None, days, SETTLE + 10_000);
        }
        let ran_ms = 10 * (SETTLE - 1) + 10 * (SETTLE + 10_000);
        assert_eq!(latest, Timestamp(START + ran_ms + 9 * HOUR));
    }

    #[test]
    fn after_an_honest_pause_ages_catch_up_at_the_next_start() {
        let week = 7 * DAY as u64;
        let (row, latest) = life(None, None, week, 23 * HOUR);
        assert_eq!(latest, Timestamp(START + 23 * HOUR));
        assert_eq!(row.unwrap().latest, Timestamp(START + 23 * HOUR + 6 * 23 * HOUR));
        // The anchor also catches up over several processes.
        let (row, latest) = life(row, None, week + DAY as u64, 6 * HOUR);
        assert_eq!(latest, Timestamp(START + 7 * 23 * HOUR + 6 * HOUR));
        assert_eq!(row.unwrap().latest, Timestamp(START + week + DAY as u64 + 6 * HOUR));
        // When the clock has been steady for a week, the anchor catches up whatever the difference.
        let (row, _) = life(None, None, 400 * week, week);
        assert_eq!(row.unwrap().latest, Timestamp(START + 401 * week));
    }

    #[test]
    fn while_the_machine_runs_nothing_has_to_catch_up() {
        let boot = |up_at_zero_ms| Some(Boot { id: crate::BootId(1), up_at_zero_ms });
        let (row, _) = life(None, boot(0), 0, HOUR);
        let (_, latest) = life(row, boot(DAY as u64), DAY as u64, 0);
        assert_eq!(latest, Timestamp(START + DAY as u64 - 2));
    }

    #[test]
    fn an_anchor_of_a_clock_that_was_ahead_comes_back() {
        let ahead = AgesRow { latest: Timestamp(START + 2 * DAY as u64), boot: None };
        let (row, latest) = life(Some(ahead), None, 0, SETTLE);
        assert_eq!((latest, row.unwrap().latest), (Timestamp(START + SETTLE), Timestamp(START + SETTLE)));
    }

    #[test]
    fn the_anchor_of_a_clock_that_was_never_set_says_nothing() {
        let unset = AgesRow { latest: Timestamp(7_000), boot: None };
        assert_eq!(life(Some(unset), None, 0, 0).1, Timestamp(START));
    }

    /// Events stored under the old wall time look two days old and are ten minutes old.
    #[test]
    fn after_a_step_was_followed_ages_must_have_been_lived_through() {
        let (mut told, mut guard) = (Told::new(), AgeGuard::new(SETTLE));
        told.off_ms = 2 * DAY;
        for ms in [1, SETTLE, SETTLE] {
            guard.tell(told.after(ms).0);
        }
        let (now, _) = told.after(1);
        assert!(!guard.believes(now, DAY as u64));
        assert!(guard.believes(now, SETTLE));
        let (now, _) = told.after(DAY as u64);
        assert!(guard.believes(now, DAY as u64));
    }
}
