//! Two kinds of time that must never be mixed: the wall clock's and the monotonic clock's.

use std::fmt;
use std::ops::Add;

use jiff::tz::Offset;
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

/// Milliseconds of 400 years, after which the Gregorian calendar repeats.
const ERA_MS: u64 = 146_097 * 86_400_000;

/// ISO 8601 UTC, the form shown to people.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ms: u64| i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        if let Some(time) = time(self.0) {
            return write!(f, "{time:.3}");
        }
        // jiff ends with the year 9999. Clients may send any later time, so it is shown as its date of the first era.
        let (eras, ms) = (self.0 / ERA_MS, self.0 % ERA_MS);
        let time = Offset::UTC.to_datetime(time(ms).unwrap_or_default());
        let year = u64::from(time.year().unsigned_abs()) + 400 * eras;
        let (month, day) = (time.month(), time.day());
        let (hour, minute, second, ms) = (time.hour(), time.minute(), time.second(), time.millisecond());
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
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
