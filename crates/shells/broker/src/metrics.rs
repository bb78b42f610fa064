//! The shell's counters: plain atomics, read on demand.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets in which commits are counted by duration, in microseconds.
const SYNC_BUCKETS_US: &[u64] =
    &[100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000];
/// Upper bounds of the buckets in which commits are counted by number of batches and of events.
const SIZE_BUCKETS: &[u64] = &[0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];

#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) commits: AtomicU64,
    pub(crate) commits_retried: AtomicU64,
    pub(crate) commit_batches: AtomicU64,
    pub(crate) commit_events: AtomicU64,
    pub(crate) sync: Histogram,
    pub(crate) batches_per_commit: Histogram,
    pub(crate) events_per_commit: Histogram,
    pub(crate) maintained_rows: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) reads_failed: AtomicU64,
    pub(crate) damaged: AtomicU64,
    pub(crate) turns: AtomicU64,
    pub(crate) dropped_slow: AtomicU64,
    pub(crate) notes_dropped: AtomicU64,
    pub(crate) outbound_bytes: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            commits: AtomicU64::default(),
            commits_retried: AtomicU64::default(),
            commit_batches: AtomicU64::default(),
            commit_events: AtomicU64::default(),
            sync: Histogram::of(SYNC_BUCKETS_US),
            batches_per_commit: Histogram::of(SIZE_BUCKETS),
            events_per_commit: Histogram::of(SIZE_BUCKETS),
            maintained_rows: AtomicU64::default(),
            reads: AtomicU64::default(),
            reads_failed: AtomicU64::default(),
            damaged: AtomicU64::default(),
            turns: AtomicU64::default(),
            dropped_slow: AtomicU64::default(),
            notes_dropped: AtomicU64::default(),
            outbound_bytes: AtomicU64::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn committed(&self, batches: usize, events: usize, took: Duration) {
        self.commits.fetch_add(1, Relaxed);
        self.commit_batches.fetch_add(batches as u64, Relaxed);
        self.commit_events.fetch_add(events as u64, Relaxed);
        self.sync.add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.batches_per_commit.add(batches as u64);
        self.events_per_commit.add(events as u64);
    }
}

/// Counts values by size; threads add to it without a lock.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    counts: Vec<AtomicU64>,
    sum: AtomicU64,
}

impl Histogram {
    /// `bounds`: the largest value of each bucket but the last, ascending.
    pub fn of(bounds: &'static [u64]) -> Histogram {
        Histogram {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::default()).collect(),
            sum: AtomicU64::default(),
        }
    }

    pub fn add(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Relaxed);
        }
        self.sum.fetch_add(value, Relaxed);
    }

    pub fn view(&self) -> HistogramView {
        HistogramView {
            bounds: self.bounds,
            counts: self.counts.iter().map(|count| count.load(Relaxed)).collect(),
            sum: self.sum.load(Relaxed),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramView {
    /// The largest value of each bucket but the last, which holds everything above.
    pub bounds: &'static [u64],
    /// Count of each bucket, not cumulative.
    pub counts: Vec<u64>,
    pub sum: u64,
}

/// A snapshot of the shell: counters since the start, and current queue lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellView {
    pub uptime_ms: u64,
    /// Turns of the owner.
    pub turns: u64,
    pub commits: u64,
    /// Attempts that wrote nothing, after which the same commit was retried.
    pub commits_retried: u64,
    pub commit_batches: u64,
    pub commit_events: u64,
    /// Durations of commits, in microseconds.
    pub sync: HistogramView,
    pub batches_per_commit: HistogramView,
    pub events_per_commit: HistogramView,
    pub maintained_rows: u64,
    pub requests_waiting: u64,
    pub backlog_batches: u64,
    pub backlog_bytes: u64,
    pub reads: u64,
    pub reads_failed: u64,
    pub reads_waiting: u64,
    /// Events that failed their checksum or were missing, counted at every read.
    pub damaged: u64,
    /// Connections dropped because they did not read.
    pub dropped_slow: u64,
    /// Steps of the wall clock by more than a minute.
    pub clock_steps: u64,
    /// Notes dropped because the log and the audit could not keep up.
    pub notes_dropped: u64,
    /// Bytes that wait to be written, over all connections.
    pub outbound_bytes: u64,
}

pub(crate) fn view(metrics: &Metrics) -> ShellView {
    ShellView {
        turns: metrics.turns.load(Relaxed),
        commits: metrics.commits.load(Relaxed),
        commits_retried: metrics.commits_retried.load(Relaxed),
        commit_batches: metrics.commit_batches.load(Relaxed),
        commit_events: metrics.commit_events.load(Relaxed),
        sync: metrics.sync.view(),
        batches_per_commit: metrics.batches_per_commit.view(),
        events_per_commit: metrics.events_per_commit.view(),
        maintained_rows: metrics.maintained_rows.load(Relaxed),
        reads: metrics.reads.load(Relaxed),
        reads_failed: metrics.reads_failed.load(Relaxed),
        damaged: metrics.damaged.load(Relaxed),
        dropped_slow: metrics.dropped_slow.load(Relaxed),
        notes_dropped: metrics.notes_dropped.load(Relaxed),
        outbound_bytes: metrics.outbound_bytes.load(Relaxed),
        ..ShellView::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_land_in_the_bucket_that_bounds_them() {
        let histogram = Histogram::of(SYNC_BUCKETS_US);
        for us in [0, 100, 101, 5_000_000, 5_000_001] {
            histogram.add(us);
        }
        let view = histogram.view();
        assert_eq!((view.counts[0], view.counts[1], view.counts[12], view.counts[13]), (2, 1, 1, 1));
        assert_eq!(view.sum, 10_000_202);
    }
}
