//! Two kinds of time that must never be mixed: the wall clock's and the monotonic clock's.

use std::fmt;
use std::ops::Add;

use serde::{Deserialize, Serialize};

/// Wall-clock time in epoch milliseconds, as it is stored and shown. The wall clock may step, so nothing waits for it
/// alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

/// Time passed since the owner of an engine started, in milliseconds. Starts at zero, never decreases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

/// Engines are told whole milliseconds, so «now» may lie anywhere within one. Waits that must not end too early are
/// longer by this much.
pub const TICK_MS: u64 = 1;

/// When a delayed event is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliverAt {
    AfterMs(u64),
    At(Timestamp),
}

/// The time that an engine is told with every input. Shells make it from the system's clocks with a
/// [`crate::SteadyClock`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    pub mono: Mono,
    /// Advances with `mono` when the system's wall clock steps, and follows a step that lasts.
    pub wall: Timestamp,
    /// Since when the system's wall clock has shown `wall`; equals `mono` while it does not. Code that removes
    /// something because of its age must ask a [`crate::AgeGuard`].
    pub steady_since: Mono,
}

impl Now {
    /// Returns the monotonic moment at which the wall clock will show `at`, if it does not step.
    pub fn mono_at(&self, at: Timestamp) -> Mono {
        self.mono + at.0.saturating_sub(self.wall.0)
    }
}

impl Add<u64> for Mono {
    type Output = Mono;
    fn add(self, ms: u64) -> Mono {
        Mono(self.0.saturating_add(ms))
    }
}

impl Add<u64> for Timestamp {
    type Output = Timestamp;
    fn add(self, ms: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(ms))
    }
}

impl Timestamp {
    pub fn saturating_sub(self, ms: u64) -> Timestamp {
        Timestamp(self.0.saturating_sub(ms))
    }
}

/// ISO 8601 UTC, the form shown to people.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, ms_of_day) = (self.0 / 86_400_000, self.0 % 86_400_000);
        let (year, month, day) = civil_from_days(days);
        let (s, ms) = (ms_of_day / 1000, ms_of_day % 1000);
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{ms:03}Z", s / 3600, s / 60 % 60, s % 60)
    }
}

/// Returns the Gregorian date of a day number counted from 1970-01-01, by eras of 400 years beginning on 1 March 0000.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_shown_in_iso_8601() {
        for (ms, shown) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_723_140_000_000, "2024-08-08T18:00:00.000Z"),
            (4_102_444_799_999, "2099-12-31T23:59:59.999Z"),
            (12_622_780_800_000, "2370-01-01T00:00:00.000Z"),
            (253_402_207_199_999, "9999-12-30T21:59:59.999Z"),
            (253_402_207_200_001, "9999-12-30T22:00:00.001Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (253_402_300_800_000, "10000-01-01T00:00:00.000Z"),
            (379_635_206_400_123, "14000-02-29T00:00:00.123Z"),
            (u64::MAX, "584556019-04-03T14:25:51.615Z"),
        ] {
            assert_eq!(Timestamp(ms).to_string(), shown);
        }
    }
}
