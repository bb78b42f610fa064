//! Whether the server's memory is flat: compares the last third of the run with the second.

use std::time::Duration;

/// How much larger the mean of the last third may be than that of the second.
pub(crate) const TOLERANCE: f64 = 0.10;
/// A shorter run is not judged: caches still fill.
pub(crate) const JUDGED_FROM: Duration = Duration::from_secs(180);

#[derive(Debug, Default)]
pub(crate) struct Memory(Vec<(f64, f64)>);

impl Memory {
    pub(crate) fn push(&mut self, at: Duration, megabytes: f64) {
        self.0.push((at.as_secs_f64() / 60.0, megabytes));
    }

    pub(crate) fn first(&self) -> f64 {
        self.0.first().map_or(0.0, |(_, megabytes)| *megabytes)
    }

    pub(crate) fn last(&self) -> f64 {
        self.0.last().map_or(0.0, |(_, megabytes)| *megabytes)
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.iter().map(|(_, megabytes)| *megabytes).fold(0.0, f64::max)
    }

    /// Means of the second and of the last third.
    pub(crate) fn thirds(&self) -> Option<(f64, f64)> {
        let third = self.0.len() / 3;
        let mean = |part: &[(f64, f64)]| part.iter().map(|(_, mb)| mb).sum::<f64>() / part.len() as f64;
        let (second, last) = (&self.0[third..2 * third], &self.0[2 * third..]);
        (third > 0).then(|| (mean(second), mean(last)))
    }

    /// Slope of the straight line through the second and the last third.
    pub(crate) fn megabytes_per_minute(&self) -> f64 {
        let part = &self.0[self.0.len() / 3..];
        let count = part.len() as f64;
        let (x, y) =
            part.iter().fold((0.0, 0.0), |(x, y), (minute, mb)| (x + minute / count, y + mb / count));
        let (mut over, mut under) = (0.0, 0.0);
        for (minute, mb) in part {
            over += (minute - x) * (mb - y);
            under += (minute - x).powi(2);
        }
        if under > 0.0 { over / under } else { 0.0 }
    }

    pub(crate) fn is_flat(&self) -> bool {
        self.thirds().is_some_and(|(second, last)| last <= second * (1.0 + TOLERANCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(megabytes: impl Fn(u64) -> f64) -> Memory {
        let mut memory = Memory::default();
        for minute in 0..30 {
            memory.push(Duration::from_secs(60 * minute), megabytes(minute));
        }
        memory
    }

    #[test]
    fn a_rise_at_the_start_is_a_cache_and_a_steady_one_is_a_leak() {
        assert!(of(|minute| 50.0 + minute.min(8) as f64 * 5.0).is_flat());
        let leak = of(|minute| 50.0 + minute as f64 * 2.0);
        assert!(!leak.is_flat());
        assert!((leak.megabytes_per_minute() - 2.0).abs() < 1e-6);
        assert!(!Memory::default().is_flat());
        assert_eq!(Memory::default().megabytes_per_minute(), 0.0);
    }
}
