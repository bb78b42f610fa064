//! Small statistics: quantiles of one load, medians over rounds.

use std::time::Duration;

/// Durations of single operations.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    pub fn push(&mut self, took: Duration) {
        self.0.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    pub fn extend(&mut self, other: Latencies) {
        self.0.extend(other.0);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The quantile in milliseconds.
    pub fn quantile_ms(&mut self, q: f64) -> f64 {
        self.0.sort_unstable();
        let at = ((self.0.len().saturating_sub(1)) as f64 * q).round() as usize;
        self.0.get(at).map_or(0.0, |ns| *ns as f64 / 1e6)
    }
}

/// A value measured once per round.
#[derive(Clone, Debug, Default)]
pub struct Rounds(Vec<f64>);

impl Rounds {
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    pub fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or(0.0)
    }

    pub fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(0.0)
    }

    pub fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(0.0)
    }
}
