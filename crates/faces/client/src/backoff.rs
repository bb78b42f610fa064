//! Delays before reconnecting: 1, 2, 4, 8, then 10 seconds, each shortened by a random part so that the clients of a
//! restarted server do not all connect at once.

use std::time::Duration;

/// Most of a delay that jitter takes away, in percent.
const JITTER_PERCENT: u64 = 20;

#[derive(Debug)]
pub(crate) struct Backoff {
    max: Duration,
    last: Duration,
}

impl Backoff {
    pub(crate) fn new(start: Duration, max: Duration) -> Backoff {
        Backoff { max, last: start }
    }

    /// Doubles the delay and returns it with jitter. `draw` is any random number.
    pub(crate) fn next(&mut self, draw: u64) -> Duration {
        self.last = self.last.saturating_mul(2).min(self.max);
        self.last.mul_f64(1.0 - (draw % (JITTER_PERCENT + 1)) as f64 / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_largest() {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
        let delays: Vec<_> = (0..6).map(|_| backoff.next(0).as_millis()).collect();
        assert_eq!(delays, [1000, 2000, 4000, 8000, 10_000, 10_000]);
        assert_eq!(backoff.next(JITTER_PERCENT).as_millis(), 8000);
    }
}
