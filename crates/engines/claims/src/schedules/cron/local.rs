//! How clock changes (daylight saving time) affect cron expressions.
//!
//! The cron library matches an expression against local times as if clocks never changed. This file decides at which
//! moment a local time fires:
//!
//! - With a fixed minute and hour, each matching local time fires once. A time that a clock change skips fires at the
//!   first moment after the change, once for all that were skipped; a time that comes twice fires the first time.
//! - With a `*` in the minute or hour (`*/15 * * * *`), the expression is an interval and goes by elapsed time: it
//!   fires whenever the wall clock shows a matching time, also the second time, and never for a time that was skipped.
//!
//! These are the rules of Vixie cron. The library's own search in a time zone is not used: it fires at the end of a gap
//! for times that no gap has skipped, and stops at a gap longer than two hours (a zone that crossed the date line).

use croner::Cron;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

const TICK: SignedDuration = SignedDuration::from_nanos(1);

#[derive(Clone, Debug)]
pub(super) struct LocalTimes {
    cron: Cron,
    zone: TimeZone,
    interval: bool,
}

impl LocalTimes {
    pub(super) fn new(cron: Cron, zone: TimeZone) -> LocalTimes {
        let interval = cron.pattern.minutes.from_wildcard || cron.pattern.hours.from_wildcard;
        LocalTimes { cron, zone, interval }
    }

    /// Returns the first fire after `after`. Gives up at the first clock change past `horizon`.
    pub(super) fn next(&self, after: Timestamp, horizon: Timestamp) -> Option<Timestamp> {
        if self.interval { self.next_shown(after, horizon) } else { self.next_fixed(after) }
    }

    /// Returns the last fire at or before `now`. Gives up at the last clock change before `earliest`.
    pub(super) fn latest(&self, earliest: Timestamp, now: Timestamp) -> Option<Timestamp> {
        if self.interval { self.latest_shown(earliest, now) } else { self.latest_fixed(now) }
    }

    /// Later local times never fire earlier, so the first one that fires after `after` is the answer. The loop skips
    /// local times that have fired already, which exist only while the clock shows times for the second time: at most a
    /// day of minutes.
    fn next_fixed(&self, after: Timestamp) -> Option<Timestamp> {
        let mut local = self.zone.to_datetime(after);
        loop {
            local = self.cron.find_next_occurrence(&local, false).ok()?;
            let at = self.fires_at(local)?;
            if at > after {
                return Some(at);
            }
        }
    }

    fn latest_fixed(&self, now: Timestamp) -> Option<Timestamp> {
        let mut local = self.zone.to_datetime(now);
        // After the clock was set back, some local times later than the one it shows have fired already.
        if let Some(change) = self.last_change(now) {
            let before = self.zone.to_offset(change.checked_sub(TICK).ok()?);
            local = local.max(before.to_datetime(change));
        }
        let mut inclusive = true;
        loop {
            local = self.cron.find_previous_occurrence(&local, inclusive).ok()?;
            let at = self.fires_at(local)?;
            if at <= now {
                return Some(at);
            }
            inclusive = false;
        }
    }

    fn fires_at(&self, local: DateTime) -> Option<Timestamp> {
        match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local).ok(),
            // The offset before the change gives the first of the two moments.
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local).ok(),
            // The offset after the change gives a moment before the change, earlier by less than the length of the gap.
            AmbiguousOffset::Gap { after, .. } => {
                let before_change = after.to_timestamp(local).ok()?;
                self.zone.following(before_change).next().map(|change| change.timestamp())
            }
        }
    }

    /// Between two clock changes, local time is the moment plus a constant offset.
    fn next_shown(&self, after: Timestamp, horizon: Timestamp) -> Option<Timestamp> {
        let (mut from, mut inclusive) = (after, false);
        while from <= horizon {
            let offset = self.zone.to_offset(from);
            let local = self.cron.find_next_occurrence(&offset.to_datetime(from), inclusive).ok()?;
            let at = offset.to_timestamp(local).ok()?;
            match self.zone.following(from).next().map(|change| change.timestamp()) {
                Some(change) if at >= change => (from, inclusive) = (change, true),
                _ => return Some(at),
            }
        }
        None
    }

    fn latest_shown(&self, earliest: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let mut from = now;
        while from >= earliest {
            let offset = self.zone.to_offset(from);
            let local = self.cron.find_previous_occurrence(&offset.to_datetime(from), true).ok()?;
            let at = offset.to_timestamp(local).ok()?;
            match self.last_change(from) {
                Some(change) if at < change => from = change.checked_sub(TICK).ok()?,
                _ => return Some(at),
            }
        }
        None
    }

    /// Returns the last clock change at or before `at`.
    fn last_change(&self, at: Timestamp) -> Option<Timestamp> {
        let after = at.checked_add(TICK).ok()?;
        let before = self.zone.preceding(after).next()?.timestamp();
        // Searching backwards from after the last change that the database lists, the library uses the rule for future
        // years and may miss that change (America/Ciudad_Juarez, 30 November 2022). Searching forwards finds it.
        let between = self.zone.following(before).map(|change| change.timestamp());
        Some(between.take_while(|change| *change <= at).last().unwrap_or(before))
    }
}
