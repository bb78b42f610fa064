//! An HTTP connection as [`Places`] sees it: which phase it is in, and whether others need its place.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::fairness::CallerKey;
use crate::fairness::places::{Phase, Places};

/// A request that waits for a place checks again after this long: a peer may have become slow meanwhile.
const LOOK_AGAIN_MS: u64 = 100;

/// How fast a peer must send a body or read a response while others wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyPace {
    pub(crate) patience_ms: u64,
    pub(crate) bytes_per_second: u64,
}

impl BodyPace {
    /// Returns the time at which a peer counts as slow, after it moved `bytes` now; without them that time was
    /// `slow_at_ms`. Never later than `patience_ms` from now: bytes that a buffer took at once buy no extra time.
    fn slow_at(self, slow_at_ms: u64, now_ms: u64, bytes: u64) -> u64 {
        let bought_ms = bytes.saturating_mul(1000) / self.bytes_per_second.max(1);
        slow_at_ms.saturating_add(bought_ms).min(self.from(now_ms))
    }

    /// The time at which a peer counts as slow that moves nothing from now on.
    fn from(self, now_ms: u64) -> u64 {
        now_ms.saturating_add(self.patience_ms)
    }
}

/// State that the tasks of a connection share without a lock.
#[derive(Debug)]
pub(super) struct PlaceSignals {
    told: watch::Sender<bool>,
    pace: BodyPace,
    begun: Instant,
    /// In milliseconds since `begun`. Moves on whenever a part of the body arrives or a part of the response is sent.
    slow_at_ms: AtomicU64,
    /// A part of the response is left that the peer does not read.
    unwritten: AtomicBool,
    served: AtomicBool,
}

impl PlaceSignals {
    pub(super) fn new(pace: BodyPace) -> PlaceSignals {
        PlaceSignals {
            told: watch::Sender::new(false),
            pace,
            begun: Instant::now(),
            slow_at_ms: AtomicU64::new(pace.from(0)),
            unwritten: AtomicBool::new(false),
            served: AtomicBool::new(false),
        }
    }

    pub(super) fn tell(&self) {
        self.told.send_replace(true);
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A phase begins, and with it the full patience.
    pub(super) fn restart(&self) {
        self.slow_at_ms.store(self.pace.from(self.now_ms()), Relaxed);
    }

    fn moved(&self, bytes: usize) {
        let slow_at = self.pace.slow_at(self.slow_at_ms.load(Relaxed), self.now_ms(), bytes as u64);
        self.slow_at_ms.store(slow_at, Relaxed);
    }

    /// Whether the peer is too slow, provided that the server is waiting for it.
    pub(super) fn is_late(&self) -> bool {
        self.now_ms() >= self.slow_at_ms.load(Relaxed)
    }

    /// Whether the connection ever had a request.
    pub(super) fn is_served(&self) -> bool {
        self.served.load(Relaxed)
    }

    pub(super) fn is_unwritten(&self) -> bool {
        self.unwritten.load(Relaxed)
    }
}

/// The place was given to others: the request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentAway;

/// The place of one HTTP connection, kept as long as the connection lives.
#[derive(Debug)]
pub(crate) struct ConnectionPlace {
    places: Arc<Places>,
    id: u64,
    signals: Arc<PlaceSignals>,
}

impl ConnectionPlace {
    pub(super) fn new(places: Arc<Places>, id: u64, signals: Arc<PlaceSignals>) -> ConnectionPlace {
        ConnectionPlace { places, id, signals }
    }

    /// Waits until somebody else needs the place.
    pub(crate) async fn sent_away(&self) -> SentAway {
        // The sender is `self`, so this cannot fail.
        let _ = self.signals.told.subscribe().wait_for(|told| *told).await;
        SentAway
    }

    /// Whether the connection ever had a request, so that a response may still have to be written.
    pub(crate) fn has_served(&self) -> bool {
        self.signals.is_served()
    }

    /// The head of a request has arrived.
    pub(crate) fn request(&self, has_body: bool) {
        self.signals.served.store(true, Relaxed);
        self.places.enter(self.id, if has_body { Phase::Body } else { Phase::Work });
    }

    /// Takes a place for a request of this caller, as soon as there is one.
    pub(crate) async fn count(&self, caller: &CallerKey, has_body: bool) -> Result<(), SentAway> {
        let phase = if has_body { Phase::Body } else { Phase::Work };
        loop {
            let mut freed = pin!(self.places.freed.notified());
            freed.as_mut().enable();
            if self.places.count(self.id, caller, phase) {
                return Ok(());
            }
            tokio::select! {
                () = freed => {}
                () = tokio::time::sleep(Duration::from_millis(LOOK_AGAIN_MS)) => {}
                sent_away = self.sent_away() => return Err(sent_away),
            }
        }
    }

    /// Waits for something the server is short of. Meanwhile the connection can be evicted.
    pub(crate) async fn wait_for<T>(&self, awaited: impl Future<Output = T>) -> Result<T, SentAway> {
        let phase = self.places.phase(self.id).unwrap_or(Phase::Work);
        let mut awaited = pin!(awaited);
        // Usually it is available at once.
        if let Some(ready) = futures_util::FutureExt::now_or_never(awaited.as_mut()) {
            return Ok(ready);
        }
        self.places.enter(self.id, Phase::Waiting);
        let result = tokio::select! {
            ready = awaited => Ok(ready),
            sent_away = self.sent_away() => Err(sent_away),
        };
        self.places.enter(self.id, phase);
        result
    }

    /// A part of the request's body has arrived.
    pub(crate) fn came(&self, bytes: usize) {
        self.signals.moved(bytes);
    }

    /// The whole body has arrived.
    pub(crate) fn work(&self) {
        self.places.enter(self.id, Phase::Work);
    }

    /// The request has its response; the connection waits for the next request.
    pub(crate) fn answered(&self) {
        self.places.enter(self.id, Phase::Request);
    }

    /// The peer read so many bytes, or `None`: it reads nothing at the moment.
    pub(crate) fn written(&self, bytes: Option<usize>) {
        self.signals.unwritten.store(bytes.is_none(), Relaxed);
        self.signals.moved(bytes.unwrap_or(0));
    }

    /// The peer read nothing of its response for too long.
    pub(crate) fn answer_timed_out(&self) {
        self.places.timed_out(self.id);
    }

    /// The HTTP connection has ended.
    pub(crate) fn leave(&self) {
        self.places.leave(self.id);
    }

    /// Whether the peer keeps the server waiting.
    pub(super) fn is_slow(&self) -> bool {
        self.places.is_slow(self.id)
    }

    pub(super) fn is_working(&self) -> bool {
        self.places.is_working(self.id)
    }

    /// Evicts the connection: others need what it holds.
    pub(super) fn send_away(&self) {
        self.places.send_away(self.id);
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_must_keep_the_pace_and_cannot_buy_more_than_the_patience() {
        let pace = BodyPace { patience_ms: 1000, bytes_per_second: 8192 };
        assert_eq!(pace.from(500), 1500);
        // A byte per 100 ms earns no time, 1 KiB per 100 ms is enough.
        let after = |bytes| (1..=50).fold(pace.from(0), |slow_at, n| pace.slow_at(slow_at, n * 100, bytes));
        assert_eq!((after(1), after(1024)), (1000, 6000));
        assert_eq!(pace.slow_at(1000, 10, u64::MAX), 1010);
    }
}
