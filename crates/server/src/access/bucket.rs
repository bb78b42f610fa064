//! Rates: a bucket that is full at first, pays for every request and fills up again with time.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// How many per second in the long run, and how many at once after a pause. Zero per second means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    pub per_second: u64,
    pub burst: u64,
}

impl Rate {
    pub(crate) fn is_limited(self) -> bool {
        self.per_second > 0
    }
}

/// Counts in thousandths, so that whole milliseconds at whole rates lose nothing.
const UNIT: u64 = 1000;

/// Told the time: milliseconds since any fixed moment.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: Rate,
    level: u64,
    at_ms: u64,
}

/// Not now; after this long there will be enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooSoon {
    pub(crate) wait_ms: u64,
}

impl std::fmt::Display for TooSoon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "too many requests: try again in {} ms", self.wait_ms)
    }
}

impl Bucket {
    pub(crate) fn full(rate: Rate, now_ms: u64) -> Bucket {
        let rate = Rate { per_second: rate.per_second.max(1), burst: rate.burst.max(1) };
        Bucket { rate, level: rate.burst.saturating_mul(UNIT), at_ms: now_ms }
    }

    /// A cost above what the bucket can hold is paid with a full one: it would never be let in otherwise.
    pub(crate) fn take(&mut self, now_ms: u64, cost: u64) -> Result<(), TooSoon> {
        let max = self.rate.burst.saturating_mul(UNIT);
        let filled = now_ms.saturating_sub(self.at_ms).saturating_mul(self.rate.per_second);
        self.level = self.level.saturating_add(filled).min(max);
        self.at_ms = self.at_ms.max(now_ms);
        let cost = cost.saturating_mul(UNIT).min(max);
        if self.level < cost {
            return Err(TooSoon { wait_ms: (cost - self.level).div_ceil(self.rate.per_second) });
        }
        self.level -= cost;
        Ok(())
    }
}

/// A bucket with a clock, shared by whoever pays from it. The lock is held for a few instructions.
#[derive(Debug)]
pub(crate) struct Meter {
    bucket: Option<Mutex<Bucket>>,
    since: Instant,
}

impl Meter {
    pub(crate) fn new(rate: Rate) -> Meter {
        let bucket = rate.is_limited().then(|| Mutex::new(Bucket::full(rate, 0)));
        Meter { bucket, since: Instant::now() }
    }

    pub(crate) fn take(&self, cost: u64) -> Result<(), TooSoon> {
        let Some(bucket) = &self.bucket else { return Ok(()) };
        let now_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        bucket.lock().unwrap_or_else(PoisonError::into_inner).take(now_ms, cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_the_rate_counts() {
        let mut bucket = Bucket::full(Rate { per_second: 10, burst: 3 }, 0);
        assert!((0..3).all(|_| bucket.take(0, 1).is_ok()));
        assert_eq!(bucket.take(0, 1), Err(TooSoon { wait_ms: 100 }));
        assert_eq!(bucket.take(99, 1), Err(TooSoon { wait_ms: 1 }));
        assert_eq!(bucket.take(100, 1), Ok(()));
        assert_eq!(bucket.take(100, 2), Err(TooSoon { wait_ms: 200 }));
    }

    #[test]
    fn it_never_holds_more_than_the_burst_and_nothing_overflows() {
        let mut bucket = Bucket::full(Rate { per_second: u64::MAX, burst: u64::MAX }, 0);
        assert_eq!(bucket.take(u64::MAX, u64::MAX), Ok(()));
        let mut bucket = Bucket::full(Rate { per_second: 1, burst: 2 }, 0);
        assert_eq!(bucket.take(1_000_000, 2), Ok(()));
        assert!(bucket.take(1_000_000, 1).is_err());
    }

    #[test]
    fn what_costs_more_than_the_burst_takes_all_of_it() {
        let mut bucket = Bucket::full(Rate { per_second: 1, burst: 5 }, 0);
        assert_eq!(bucket.take(0, 1000), Ok(()));
        assert_eq!(bucket.take(0, 1000), Err(TooSoon { wait_ms: 5000 }));
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing_away() {
        let mut bucket = Bucket::full(Rate { per_second: 1, burst: 1 }, 1000);
        assert_eq!(bucket.take(1000, 1), Ok(()));
        assert!(bucket.take(0, 1).is_err() && bucket.take(1000, 1).is_err());
        assert_eq!(bucket.take(2000, 1), Ok(()));
    }
}
