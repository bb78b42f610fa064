//! Bounds the memory for WebSocket frames that have begun and are not complete. A connection may hold one frame of up
//! to `frame_bytes_max`, so a thousand connections could hold a gigabyte without ever sending a whole frame.
//!
//! Small frames are not counted. When the larger ones together pass the bound, the caller that holds most loses the
//! connection with its oldest frame. Nobody waits: a peer that sends its frames whole never notices.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::Message;

use crate::fairness::{CallerKey, EvictionReason, Evictions};

/// Bytes of an incomplete frame that a connection may hold without being accounted for.
const FREE_BYTES: usize = 64 << 10;
/// The header of a frame from a client, without the longer forms of its length.
const HEAD_BYTES: usize = 6;

#[derive(Debug)]
pub(crate) struct Frames {
    max: usize,
    evictions: Arc<Evictions>,
    table: Mutex<FrameTable>,
}

#[derive(Debug, Default)]
struct FrameTable {
    last: u64,
    /// By number, which is the order in which the frames became large.
    incomplete: BTreeMap<u64, Incomplete>,
}

#[derive(Debug)]
struct Incomplete {
    caller: CallerKey,
    bytes: usize,
    told: Arc<Notify>,
}

impl FrameTable {
    fn bytes(&self) -> usize {
        self.incomplete.values().map(|frame| frame.bytes).sum()
    }

    /// The oldest frame of the caller that holds most.
    fn victim(&self) -> Option<u64> {
        let mut held: HashMap<&CallerKey, usize> = HashMap::new();
        for frame in self.incomplete.values() {
            *held.entry(&frame.caller).or_default() += frame.bytes;
        }
        let most = held.values().copied().max()?;
        let of_largest = |frame: &Incomplete| held.get(&frame.caller) == Some(&most);
        self.incomplete.iter().find(|(_, frame)| of_largest(frame)).map(|(id, _)| *id)
    }
}

impl Frames {
    pub(crate) fn new(max: usize, evictions: Arc<Evictions>) -> Arc<Frames> {
        Arc::new(Frames { max, evictions, table: Mutex::default() })
    }

    /// Creates the meter of one connection.
    pub(crate) fn meter(self: &Arc<Frames>, caller: CallerKey) -> Arc<FrameMeter> {
        let (bytes, id) = (AtomicUsize::new(0), Mutex::new(None));
        Arc::new(FrameMeter { frames: self.clone(), caller, bytes, id, told: Arc::default() })
    }
}

/// Counts the bytes that one connection has sent of a frame that is not complete.
#[derive(Debug)]
pub(crate) struct FrameMeter {
    frames: Arc<Frames>,
    caller: CallerKey,
    bytes: AtomicUsize,
    /// The frame's number in the table, while the frame is large.
    id: Mutex<Option<u64>>,
    told: Arc<Notify>,
}

impl FrameMeter {
    /// Counts bytes that were read from the peer.
    pub(crate) fn came(&self, bytes: usize) {
        let held = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        if held > FREE_BYTES {
            self.account(held);
        }
    }

    fn account(&self, held: usize) {
        let mut id = self.id.lock();
        let mut table = self.frames.table.lock();
        let number = *id.get_or_insert_with(|| {
            table.last += 1;
            table.last
        });
        let (caller, told) = (self.caller.clone(), self.told.clone());
        table.incomplete.insert(number, Incomplete { caller, bytes: held, told });
        while table.bytes() > self.frames.max {
            let Some(victim) = table.victim().and_then(|victim| table.incomplete.remove(&victim)) else {
                break;
            };
            victim.told.notify_one();
            self.frames.evictions.count(EvictionReason::IncompleteFrame, &victim.caller);
        }
    }

    /// Accounts for a message that was read. Returns how many bytes of data it had.
    pub(crate) fn read(&self, message: &Message) -> usize {
        match message {
            Message::Ping(bytes) | Message::Pong(bytes) => {
                self.control(bytes.len());
                0
            }
            Message::Text(text) => self.whole(text.len()),
            Message::Binary(bytes) => self.whole(bytes.len()),
            Message::Close(_) | Message::Frame(_) => self.whole(0),
        }
    }

    /// A whole message was read: the connection no longer holds its bytes.
    fn whole(&self, bytes: usize) -> usize {
        if self.bytes.swap(0, Relaxed) > FREE_BYTES {
            self.forget();
        }
        bytes
    }

    /// A ping or pong was read. Such a message may stand between the parts of a message that is not complete.
    fn control(&self, bytes: usize) {
        let less = |held: usize| Some(held.saturating_sub(bytes + HEAD_BYTES));
        // The closure always returns a number, so this cannot fail.
        let _ = self.bytes.fetch_update(Relaxed, Relaxed, less);
    }

    /// Waits until the memory is needed for others. For one waiter.
    pub(crate) async fn sent_away(&self) {
        self.told.notified().await;
    }

    fn forget(&self) {
        if let Some(id) = self.id.lock().take() {
            self.frames.table.lock().incomplete.remove(&id);
        }
    }
}

impl Drop for FrameMeter {
    fn drop(&mut self) {
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const MIB: usize = 1 << 20;

    fn caller(last: u8) -> CallerKey {
        CallerKey::of_address([127, 0, 0, last].into())
    }

    fn is_told(meter: &FrameMeter) -> bool {
        meter.sent_away().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_of_the_caller_that_holds_most_goes() {
        let frames = Frames::new(4 * MIB, Arc::default());
        let alone = frames.meter(caller(1));
        alone.came(MIB);
        let crowd: Vec<_> = (0..5).map(|_| frames.meter(caller(2))).collect();
        crowd.iter().for_each(|meter| meter.came(MIB));
        assert_eq!(
            crowd.iter().map(|meter| is_told(meter)).collect::<Vec<_>>(),
            [true, true, false, false, false]
        );
        assert!(!is_told(&alone));
        assert!(frames.table.lock().bytes() <= 4 * MIB);
        drop((alone, crowd));
        assert_eq!(frames.table.lock().incomplete.len(), 0);
    }

    #[test]
    fn whole_messages_and_small_parts_hold_nothing() {
        let frames = Frames::new(MIB, Arc::default());
        let meter = frames.meter(caller(1));
        for _ in 0..100 {
            meter.came(MIB / 2);
            meter.whole(MIB / 2);
        }
        let many: Vec<_> = (0..100).map(|_| frames.meter(caller(2))).collect();
        many.iter().for_each(|meter| meter.came(FREE_BYTES));
        assert!(
            frames.table.lock().incomplete.is_empty()
                && !is_told(&meter)
                && !many.iter().any(|meter| is_told(meter))
        );
    }

    #[test]
    fn pings_between_the_parts_of_a_message_give_nothing_back_but_themselves() {
        let frames = Frames::new(MIB, Arc::default());
        let meter = frames.meter(caller(1));
        for _ in 0..10_000 {
            meter.came(HEAD_BYTES + 125);
            meter.control(125);
        }
        assert_eq!(meter.bytes.load(Relaxed), 0);
        meter.came(MIB / 2);
        meter.came(HEAD_BYTES);
        meter.control(0);
        meter.came(MIB / 2 + 1);
        assert!(is_told(&meter));
    }
}
