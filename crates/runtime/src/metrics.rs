//! What the shell counts: plain atomics, read on demand.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets in which commits are counted by duration, in microseconds; the last one is open.
pub const SYNC_BUCKETS_US: [u64; 13] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000];

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) commits: AtomicU64,
    pub(crate) commit_batches: AtomicU64,
    pub(crate) commit_events: AtomicU64,
    pub(crate) sync: Histogram,
    pub(crate) maintained_rows: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) reads_failed: AtomicU64,
    pub(crate) reads_waiting: AtomicU64,
    pub(crate) damaged: AtomicU64,
    pub(crate) turns: AtomicU64,
    pub(crate) dropped_slow: AtomicU64,
}

impl Metrics {
    pub(crate) fn committed(&self, batches: usize, events: usize, took: Duration) {
        self.commits.fetch_add(1, Relaxed);
        self.commit_batches.fetch_add(batches as u64, Relaxed);
        self.commit_events.fetch_add(events as u64, Relaxed);
        self.sync.add(took);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Histogram {
    counts: [AtomicU64; SYNC_BUCKETS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    fn add(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = SYNC_BUCKETS_US.partition_point(|bound| *bound < us);
        self.counts[bucket].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
    }

    fn view(&self) -> HistogramView {
        HistogramView {
            counts: std::array::from_fn(|at| self.counts[at].load(Relaxed)),
            sum_us: self.sum_us.load(Relaxed),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramView {
    /// Per bucket of [`SYNC_BUCKETS_US`], not summed up; the last holds everything above.
    pub counts: [u64; SYNC_BUCKETS_US.len() + 1],
    pub sum_us: u64,
}

/// The shell at one moment: counters since start, depths as of now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellView {
    pub uptime_ms: u64,
    /// Rounds of the owner.
    pub turns: u64,
    pub commits: u64,
    pub commit_batches: u64,
    pub commit_events: u64,
    pub sync: HistogramView,
    pub maintained_rows: u64,
    pub requests_waiting: u64,
    pub backlog_batches: u64,
    pub backlog_bytes: u64,
    pub reads: u64,
    pub reads_failed: u64,
    pub reads_waiting: u64,
    /// Events that failed their checksum or vanished, as often as they were met.
    pub damaged: u64,
    /// Connections dropped because they did not read.
    pub dropped_slow: u64,
}

pub(crate) fn view(metrics: &Metrics) -> ShellView {
    ShellView {
        turns: metrics.turns.load(Relaxed),
        commits: metrics.commits.load(Relaxed),
        commit_batches: metrics.commit_batches.load(Relaxed),
        commit_events: metrics.commit_events.load(Relaxed),
        sync: metrics.sync.view(),
        maintained_rows: metrics.maintained_rows.load(Relaxed),
        reads: metrics.reads.load(Relaxed),
        reads_failed: metrics.reads_failed.load(Relaxed),
        reads_waiting: metrics.reads_waiting.load(Relaxed),
        damaged: metrics.damaged.load(Relaxed),
        dropped_slow: metrics.dropped_slow.load(Relaxed),
        ..ShellView::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_land_in_the_bucket_that_bounds_them() {
        let histogram = Histogram::default();
        for us in [0, 100, 101, 5_000_000, 5_000_001] {
            histogram.add(Duration::from_micros(us));
        }
        let view = histogram.view();
        assert_eq!((view.counts[0], view.counts[1], view.counts[12], view.counts[13]), (2, 1, 1, 1));
        assert_eq!(view.sum_us, 10_000_202);
    }
}
