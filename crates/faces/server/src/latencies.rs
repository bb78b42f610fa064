//! How long publishes and deliveries take, as the edges see it: the histograms of `/metrics`.

use std::time::{Duration, Instant};

use millrace_broker::{Histogram, HistogramView, SystemClock};
use millrace_bus::Reply;
use millrace_model::{Durability, Event, Timestamp};

/// Upper bounds of the buckets of publishes, in microseconds: from a store in memory to an engine far away.
const PUBLISH_US: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];
/// Upper bounds of the buckets of deliveries, in milliseconds: the time of an event has no finer unit.
const DELIVER_MS: &[u64] = &[
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000,
];

#[derive(Debug)]
pub(crate) struct Latencies {
    /// In the order of `Durability::ALL`.
    publish: [Histogram; Durability::ALL.len()],
    deliver: Histogram,
}

impl Default for Latencies {
    fn default() -> Latencies {
        let publish = Durability::ALL.map(|_| Histogram::of(PUBLISH_US));
        Latencies { publish, deliver: Histogram::of(DELIVER_MS) }
    }
}

/// The moment at which answers and deliveries leave: one reading of the clocks for all that leave together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeftAt {
    at: Instant,
    wall: Timestamp,
}

impl LeftAt {
    pub(crate) fn now(clock: &SystemClock) -> LeftAt {
        LeftAt { at: Instant::now(), wall: clock.now().wall }
    }

    pub(crate) fn since(self, arrived: Instant) -> Duration {
        self.at.saturating_duration_since(arrived)
    }
}

impl Latencies {
    /// Counts an answer to a publish; any other answer is left out.
    pub(crate) fn answered(&self, reply: &Reply, arrived: Instant, left: LeftAt) {
        let (Reply::Published { durability, .. } | Reply::PublishedBatch { durability, .. }) = reply else {
            return;
        };
        let place = Durability::ALL.iter().position(|level| level == durability);
        if let Some(histogram) = place.and_then(|place| self.publish.get(place)) {
            histogram.add(u64::try_from(left.since(arrived).as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// Counts a delivery. Later ones of the same event say how slow its consumers were, not how slow the server was.
    pub(crate) fn delivered(&self, event: &Event, attempts: u32, left: LeftAt) {
        if attempts == 1 {
            self.deliver.add(left.wall.0.saturating_sub(event.ts.0));
        }
    }

    /// The durations of publishes in microseconds.
    pub(crate) fn publish(&self) -> impl Iterator<Item = (Durability, HistogramView)> + '_ {
        Durability::ALL.into_iter().zip(self.publish.iter().map(Histogram::view))
    }

    /// The durations of deliveries in milliseconds.
    pub(crate) fn deliver(&self) -> HistogramView {
        self.deliver.view()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_to_publishes_count_and_each_by_its_durability() {
        let latencies = Latencies::default();
        let left = LeftAt { at: Instant::now(), wall: Timestamp(0) };
        let published = |durability| Reply::PublishedBatch {
            topic: millrace_model::TopicKey::parse("default/t").unwrap(),
            offsets: Vec::new(),
            duplicates: 0,
            durability,
        };
        latencies.answered(&Reply::Acked, left.at, left);
        latencies.answered(&published(Durability::Fsync), left.at, left);
        latencies.answered(&published(Durability::Memory), left.at, left);
        latencies.answered(&published(Durability::Fsync), left.at, left);
        let counts: Vec<(Durability, u64)> =
            latencies.publish().map(|(level, view)| (level, view.counts.iter().sum())).collect();
        let expected = [1, 0, 2, 0];
        assert_eq!(counts, Durability::ALL.into_iter().zip(expected).collect::<Vec<_>>());
    }
}
