//! The rate at which runs of one handler may begin: evenly spaced, by a due time that advances with every run.

use millrace_model::Mono;

/// Lowest rate: one run in about a day.
pub(crate) const RATE_MIN: f64 = 0.000_01;
pub(crate) const RATE_MAX: f64 = 1_000_000.0;

/// Engines get the time in whole milliseconds, so runs that are closer together begin in small groups: at most as many
/// as are due within this time.
const GROUP_US: u64 = 10_000;

#[derive(Clone, Debug)]
pub(crate) struct Rate {
    interval_us: u64,
    /// When the next run is due at an even pace.
    next_us: u64,
}

impl Rate {
    /// `per_s` is between [`RATE_MIN`] and [`RATE_MAX`].
    pub(crate) fn new(per_s: f64) -> Rate {
        // Within these limits the result is a whole number from 1 to 10^11.
        let interval_us = (1_000_000.0 / per_s).round() as u64;
        Rate { interval_us: interval_us.max(1), next_us: 0 }
    }

    /// From when on another run may begin.
    pub(crate) fn ready_at(&self) -> Mono {
        let group_us = GROUP_US.saturating_sub(self.interval_us);
        Mono(self.next_us.saturating_sub(group_us).div_ceil(1000))
    }

    /// Counts a run that begins. Time in which no run began is not made up for.
    pub(crate) fn begin(&mut self, now: Mono) {
        let now_us = now.0.saturating_mul(1000);
        self.next_us = self.next_us.max(now_us).saturating_add(self.interval_us);
    }

    pub(crate) fn runs_within(&self, ms: u64) -> usize {
        usize::try_from(ms.saturating_mul(1000) / self.interval_us).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many runs begin in `ms` if each begins as early as it may.
    fn begun(per_s: f64, ms: u64) -> usize {
        let mut rate = Rate::new(per_s);
        let mut begun = 0;
        for now in (1..=ms).map(Mono) {
            while rate.ready_at() <= now {
                rate.begin(now);
                begun += 1;
            }
        }
        begun
    }

    #[test]
    fn runs_are_spaced_evenly_at_any_rate() {
        assert_eq!(
            [begun(1.0, 1000), begun(1.0, 1001), begun(10.0, 1000), begun(0.5, 10_000)],
            [1, 2, 10, 5]
        );
        let many = begun(50_000.0, 1000);
        assert!((50_000..=50_500).contains(&many), "{many}");
    }

    #[test]
    fn time_that_was_not_used_is_not_made_up_for() {
        let mut rate = Rate::new(2.0);
        rate.begin(Mono(1));
        rate.begin(Mono(60_000));
        assert_eq!(rate.ready_at(), Mono(60_500));
    }
}
