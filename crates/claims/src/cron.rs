//! Cron expressions of five fields in a time zone.
//!
//! Times that a clock change skips fire once, at the first moment after it; times that come twice fire once, the first
//! time. Expressions with a free hour or minute (`*/15 * * * *`) go by elapsed time instead: they fire through both.
//! Where day of month and weekday are both given, either is enough.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use millrace_model::Timestamp;

use crate::error::SpecError;

/// How far ahead a fire must lie to count as never: 29 February is up to eight years away around 2100.
const YEARS_MAX: u64 = 12;
const MINUTE_MS: u64 = 60_000;
const YEAR_MS: u64 = 366 * 24 * 3600 * 1000;

/// When a schedule fires.
#[derive(Clone, Debug)]
pub struct Times {
    cron: Cron,
    zone: TimeZone,
}

impl Times {
    /// `name` is for the error only.
    pub fn parse(name: &str, cron: &str, zone: &str) -> Result<Times, SpecError> {
        let bad = |reason: String| SpecError::Cron { name: name.to_owned(), cron: cron.to_owned(), reason };
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let parsed = parser.parse(cron).map_err(|error| bad(error.to_string()))?;
        // The database that is built in: the answer does not depend on the machine, and no file is read.
        let database = TimeZoneDatabase::bundled();
        let zone_known = match zone {
            "UTC" => Ok(TimeZone::UTC),
            named => database.get(named),
        };
        let unknown = |_| SpecError::Zone { name: name.to_owned(), zone: zone.to_owned() };
        Ok(Times { cron: parsed, zone: zone_known.map_err(unknown)? })
    }

    /// The first fire after that moment, if there is one within a dozen years.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        // Fires are at whole minutes, and the search goes second by second: it begins with the last one before. Not with
        // the minute itself, which may be the first after a clock change that must be noticed.
        let last_second = (after.0 / MINUTE_MS).checked_add(1)?.checked_mul(MINUTE_MS)? - 1000;
        let from = jiff::Timestamp::from_millisecond(i64::try_from(last_second).ok()?).ok()?;
        let from = from.to_zoned(self.zone.clone());
        let next = self.cron.find_next_occurrence(&from, false).ok()?;
        let next = Timestamp(u64::try_from(next.timestamp().as_millisecond()).ok()?);
        (next > after && next.0 - after.0 <= YEARS_MAX * YEAR_MS).then_some(next)
    }

    /// The last fire that is not after `now`, if `first` is one that is not. `second` is the fire that follows it.
    pub(crate) fn latest(
        &self,
        first: Timestamp,
        second: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        if first > now {
            return None;
        }
        if second.is_none_or(|second| second > now) {
            return Some(first);
        }
        // From the beginning of the minute, for the same reason.
        let minute = now.0 - now.0 % MINUTE_MS;
        let at = i64::try_from(minute).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        let at = at.map(|at| at.to_zoned(self.zone.clone()));
        let before = at.and_then(|at| self.cron.find_previous_occurrence(&at, true).ok());
        let before = before.and_then(|before| u64::try_from(before.timestamp().as_millisecond()).ok());
        let before = before.map(Timestamp).filter(|before| *before <= now);
        Some(before.map_or(first, |before| before.max(first)))
    }
}

pub(crate) const NEVER_YEARS: u64 = YEARS_MAX;
