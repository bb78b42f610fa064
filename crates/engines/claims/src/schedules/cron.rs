//! The times at which a schedule fires: a cron expression of five fields in a time zone, a nickname of one (`@daily`),
//! or a fixed interval (`@every 90s`).
//!
//! `cron/local.rs` decides how clock changes affect a cron expression; the cron library only tells which local times an
//! expression matches.

mod every;
mod local;

use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use millrace_model::Timestamp;

use crate::interface::error::SpecError;
use every::Every;
use local::LocalTimes;

/// A schedule without a fire within this many years never fires: 29 February is up to eight years away around 2100.
const YEARS_MAX: u64 = 12;
const YEAR_MS: u64 = 366 * 24 * 3600 * 1000;
/// A longer expression is refused before it is parsed. All values of all five fields, written out, are shorter.
pub const CRON_CHARS_MAX: usize = 512;

/// The times at which a schedule fires.
#[derive(Clone, Debug)]
pub struct Times(Rule);

#[derive(Clone, Debug)]
enum Rule {
    Local(Box<LocalTimes>),
    Every(Every),
}

impl Times {
    /// Parses an expression. `name` is only used in errors.
    pub fn parse(name: &str, cron: &str, zone: &str) -> Result<Times, SpecError> {
        if cron.len() > CRON_CHARS_MAX {
            let reason = format!("it has {} characters, at most {CRON_CHARS_MAX} are allowed", cron.len());
            let cron = cron.chars().take(40).collect::<String>() + "...";
            return Err(SpecError::Cron { name: name.to_owned(), cron, reason });
        }
        // The bundled database: the result does not depend on the machine, and no file is read.
        let found = match zone {
            "UTC" => Ok(TimeZone::UTC),
            named => TimeZoneDatabase::bundled().get(named),
        };
        let unknown = |_| SpecError::Zone { name: name.to_owned(), zone: zone.to_owned() };
        let zone = found.map_err(unknown)?;
        if let Some(interval) = every::interval_of(cron) {
            let bad = |error: every::EveryError| SpecError::Every {
                name: name.to_owned(),
                every: cron.to_owned(),
                reason: error.to_string(),
            };
            return Ok(Times(Rule::Every(Every::parse(interval).map_err(bad)?)));
        }
        let bad = |reason| SpecError::Cron { name: name.to_owned(), cron: cron.to_owned(), reason };
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        // The library knows the other nicknames, but not this one.
        let midnight = cron.trim().eq_ignore_ascii_case("@midnight");
        let parsed = parser.parse(if midnight { "@daily" } else { cron });
        let parsed = parsed.map_err(|error| bad(error.to_string()))?;
        Ok(Times(Rule::Local(Box::new(LocalTimes::new(parsed, zone)))))
    }

    /// Returns the first fire after `after`, if there is one within `YEARS_MAX` years.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let horizon = after.0.checked_add(YEARS_MAX * YEAR_MS).map(Timestamp)?;
        let next = match &self.0 {
            Rule::Every(every) => every.next(after)?,
            Rule::Local(local) => wall(local.next(instant(after)?, instant(horizon)?)?)?,
        };
        (next > after && next <= horizon).then_some(next)
    }

    /// Returns the last fire at or before `now`; `None` if `first`, the first fire in question, is later. `second` is
    /// the fire after `first`.
    pub fn latest(&self, first: Timestamp, second: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        if first > now {
            return None;
        }
        if second.is_none_or(|second| second > now) {
            return Some(first);
        }
        let latest = match &self.0 {
            Rule::Every(every) => Some(every.latest(now)),
            Rule::Local(local) => Times::latest_local(local, first, now),
        };
        Some(latest.map_or(first, |latest| latest.max(first)))
    }

    fn latest_local(local: &LocalTimes, first: Timestamp, now: Timestamp) -> Option<Timestamp> {
        wall(local.latest(instant(first)?, instant(now)?)?)
    }
}

fn instant(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_millisecond(i64::try_from(at.0).ok()?).ok()
}

fn wall(at: jiff::Timestamp) -> Option<Timestamp> {
    u64::try_from(at.as_millisecond()).ok().map(Timestamp)
}

pub(crate) const NEVER_YEARS: u64 = YEARS_MAX;
