//! Rate limits: a token bucket that starts full, pays for every request and fills up again with time.
//!
//! A request that costs more than the bucket holds needs a full bucket and leaves it in debt. So it passes after a
//! wait, and the rate holds in the long run.

use std::time::Instant;

use parking_lot::Mutex;

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

/// The bucket counts in thousandths, so that whole milliseconds at whole rates lose nothing to rounding.
const UNIT: i128 = 1000;

/// A token bucket without a clock: callers pass the time as milliseconds since any fixed moment.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: Rate,
    /// A level below zero is a debt, which time must pay off before anything else passes.
    level: i128,
    at_ms: u64,
}

/// The rate does not allow the request now; after `wait_ms` it will.
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
        Bucket { rate, level: i128::from(rate.burst) * UNIT, at_ms: now_ms }
    }

    #[cfg(test)]
    fn spend(&mut self, now_ms: u64, cost: u64) -> Result<(), TooSoon> {
        self.spend_more(now_ms, 0, cost)
    }

    /// Takes `cost` more for a request that has paid `paid` already, and judges it as if it paid all at once. The wait
    /// in an error is that for the whole cost, because the retried request will have to pay all of it again.
    pub(crate) fn spend_more(&mut self, now_ms: u64, paid: u64, cost: u64) -> Result<(), TooSoon> {
        let max = i128::from(self.rate.burst) * UNIT;
        let per_ms = i128::from(self.rate.per_second);
        let filled = i128::from(now_ms.saturating_sub(self.at_ms)).saturating_mul(per_ms);
        self.level = self.level.saturating_add(filled).min(max);
        self.at_ms = self.at_ms.max(now_ms);
        let paid = i128::from(paid) * UNIT;
        let needed = (paid + i128::from(cost) * UNIT).min(max);
        if self.level < needed - paid {
            let missing = needed - self.level;
            let wait_ms = (missing + per_ms - 1) / per_ms;
            return Err(TooSoon { wait_ms: u64::try_from(wait_ms).unwrap_or(u64::MAX) });
        }
        self.level = self.level.saturating_sub(i128::from(cost) * UNIT);
        Ok(())
    }

    /// Returns the cost of a request that was not carried out after all.
    fn give_back(&mut self, cost: u64) {
        let max = i128::from(self.rate.burst) * UNIT;
        self.level = self.level.saturating_add(i128::from(cost) * UNIT).min(max);
    }
}

/// A [`Bucket`] with a clock, shared by several payers. The lock is held for a few instructions.
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

    pub(crate) fn spend(&self, cost: u64) -> Result<(), TooSoon> {
        self.spend_more(0, cost)
    }

    pub(crate) fn spend_more(&self, paid: u64, cost: u64) -> Result<(), TooSoon> {
        let Some(bucket) = &self.bucket else { return Ok(()) };
        let now_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        bucket.lock().spend_more(now_ms, paid, cost)
    }

    pub(crate) fn give_back(&self, cost: u64) {
        if let Some(bucket) = &self.bucket {
            bucket.lock().give_back(cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_the_rate_counts() {
        let mut bucket = Bucket::full(Rate { per_second: 10, burst: 3 }, 0);
        assert!((0..3).all(|_| bucket.spend(0, 1).is_ok()));
        assert_eq!(bucket.spend(0, 1), Err(TooSoon { wait_ms: 100 }));
        assert_eq!(bucket.spend(99, 1), Err(TooSoon { wait_ms: 1 }));
        assert_eq!(bucket.spend(100, 1), Ok(()));
        assert_eq!(bucket.spend(100, 2), Err(TooSoon { wait_ms: 200 }));
    }

    #[test]
    fn it_never_holds_more_than_the_burst_and_nothing_overflows() {
        let mut bucket = Bucket::full(Rate { per_second: u64::MAX, burst: u64::MAX }, 0);
        assert_eq!(bucket.spend(u64::MAX, u64::MAX), Ok(()));
        let mut bucket = Bucket::full(Rate { per_second: 1, burst: 2 }, 0);
        assert_eq!(bucket.spend(1_000_000, 2), Ok(()));
        assert!(bucket.spend(1_000_000, 1).is_err());
    }

    #[test]
    fn what_costs_more_than_the_burst_needs_a_full_bucket_and_leaves_a_debt() {
        let mut bucket = Bucket::full(Rate { per_second: 1, burst: 5 }, 0);
        assert_eq!(bucket.spend(0, 1000), Ok(()));
        assert_eq!(bucket.spend(0, 1), Err(TooSoon { wait_ms: 996_000 }));
        assert_eq!(bucket.spend(0, 1000), Err(TooSoon { wait_ms: 1_000_000 }));
        assert_eq!(bucket.spend(996_000, 1), Ok(()));
        assert_eq!(bucket.spend(996_000, 1000), Err(TooSoon { wait_ms: 5000 }));
        assert_eq!(bucket.spend(1_001_000, 1000), Ok(()));
    }

    #[test]
    fn what_is_paid_in_two_parts_is_judged_as_one() {
        let mut bucket = Bucket::full(Rate { per_second: 1, burst: 5 }, 0);
        assert_eq!((bucket.spend(0, 1), bucket.spend_more(0, 1, 10)), (Ok(()), Ok(())));
        // After the wait that the error named, the request passes.
        assert_eq!(bucket.spend_more(6000, 1, 10), Err(TooSoon { wait_ms: 5000 }));
        assert_eq!((bucket.spend(11_000, 1), bucket.spend_more(11_000, 1, 10)), (Ok(()), Ok(())));
        bucket.give_back(10);
        assert_eq!(bucket.spend(11_000, 4), Ok(()));
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing_away() {
        let mut bucket = Bucket::full(Rate { per_second: 1, burst: 1 }, 1000);
        assert_eq!(bucket.spend(1000, 1), Ok(()));
        assert!(bucket.spend(0, 1).is_err() && bucket.spend(1000, 1).is_err());
        assert_eq!(bucket.spend(2000, 1), Ok(()));
    }
}
