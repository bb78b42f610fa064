//! Memory for data that peers send or read slowly: bodies of requests, pages of history. The total is bounded, and so
//! is the share of each caller.
//!
//! A body reserves the length that it announces, so that a body waits before it begins and not for its last bytes. A
//! peer that does not send loses its reservation as soon as others need it, and from then on pays for what has arrived.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::fairness::{CallerKey, ConnectionPlace};

/// A body or page that waits for memory checks again after this long: a peer may have become slow meanwhile.
const LOOK_AGAIN_MS: u64 = 100;

#[derive(Debug)]
struct Hold {
    caller: CallerKey,
    /// The place of the connection that it is for, if any.
    place: Option<Arc<ConnectionPlace>>,
    reserved: usize,
    /// Bytes that are in memory and cannot be given back.
    used: usize,
    waits: bool,
}

#[derive(Debug, Default)]
struct RoomTable {
    last: u64,
    holds: BTreeMap<u64, Hold>,
}

impl RoomTable {
    fn held(&self, of: Option<&CallerKey>) -> usize {
        let of_caller = |hold: &&Hold| of.is_none_or(|caller| hold.caller == *caller);
        self.holds.values().filter(of_caller).map(|hold| hold.reserved).sum()
    }

    /// Takes back what slow peers have reserved and not sent.
    fn take_back(&mut self) {
        for hold in self.holds.values_mut().filter(|hold| hold.reserved > hold.used) {
            if hold.place.as_ref().is_some_and(|place| place.is_slow()) {
                hold.reserved = hold.used;
            }
        }
    }

    /// Returns the place of the connection to close so that hold `id` gets `needed` more bytes.
    fn victim(&self, id: u64, needed: usize, caller_is_full: bool) -> Option<Arc<ConnectionPlace>> {
        let newcomer = &self.holds.get(&id)?.caller;
        let mut held: HashMap<&CallerKey, usize> = HashMap::new();
        for hold in self.holds.values() {
            *held.entry(&hold.caller).or_default() += hold.reserved;
        }
        let of = |caller: &CallerKey| held.get(caller).copied().unwrap_or(0);
        let own = of(newcomer).saturating_add(needed);
        let others = self.holds.iter().filter(|(other, hold)| {
            **other != id && hold.reserved > 0 && (!caller_is_full || hold.caller == *newcomer)
        });
        // Slow peers first, those of the caller that holds most before others. Then a connection that the server is not
        // working for, of a caller that holds more than ours.
        let (mut slow, mut more) = (None, None);
        for (_, hold) in others {
            let Some(place) = &hold.place else { continue };
            let held = of(&hold.caller);
            let is_larger = |best: &Option<(usize, Arc<ConnectionPlace>)>| {
                best.as_ref().is_none_or(|(most, _)| held > *most)
            };
            if place.is_slow() {
                if is_larger(&slow) {
                    slow = Some((held, place.clone()));
                }
            } else if held > own && !place.is_working() && is_larger(&more) {
                more = Some((held, place.clone()));
            }
        }
        if let Some((_, place)) = slow.or(more) {
            return Some(place);
        }
        // All holds wait for one another: the newest gives way.
        let is_stuck = self.holds.values().all(|hold| hold.waits || hold.reserved == 0);
        let newest = self.holds.values().rev().find(|hold| hold.waits && hold.reserved > 0);
        newest.filter(|_| is_stuck).and_then(|hold| hold.place.clone())
    }
}

#[derive(Debug)]
pub(crate) struct Room {
    max: usize,
    caller_max: usize,
    table: Mutex<RoomTable>,
    freed: Notify,
}

impl Room {
    pub(crate) fn new(max: usize, caller_max: usize) -> Arc<Room> {
        let max = max.max(1);
        Arc::new(Room {
            max,
            caller_max: caller_max.clamp(1, max),
            table: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// Waits until `bytes` fit. A request for more than a caller may hold reserves all that the caller may hold, so it
    /// waits until its caller holds nothing else.
    pub(crate) async fn reserve(
        self: &Arc<Room>,
        caller: CallerKey,
        place: Option<Arc<ConnectionPlace>>,
        bytes: usize,
    ) -> RoomShare {
        let share = {
            let mut table = self.table.lock();
            table.last += 1;
            let id = table.last;
            table.holds.insert(id, Hold { caller, place, reserved: 0, used: 0, waits: false });
            RoomShare { room: self.clone(), id }
        };
        share.grow(bytes).await;
        share
    }

    /// Reserves `bytes` for hold `id` if they fit now. If they do not, evicts a connection, if there is one to evict,
    /// and returns false.
    fn try_grow(&self, id: u64, bytes: usize) -> bool {
        let mut table = self.table.lock();
        let bytes = bytes.min(self.caller_max);
        for is_last in [false, true] {
            let Some(hold) = table.holds.get(&id) else { return true };
            let needed = bytes.saturating_sub(hold.reserved);
            let caller_is_full = table.held(Some(&hold.caller)) + needed > self.caller_max;
            let fits = needed == 0 || !caller_is_full && table.held(None) + needed <= self.max;
            if let Some(hold) = table.holds.get_mut(&id) {
                hold.waits = !fits;
                hold.reserved += if fits { needed } else { 0 };
            }
            if fits {
                return true;
            }
            if !is_last {
                table.take_back();
                continue;
            }
            let victim = table.victim(id, needed, caller_is_full);
            drop(table);
            if let Some(place) = victim {
                place.send_away();
            }
            return false;
        }
        false
    }
}

/// The memory that one body or page holds.
#[derive(Debug)]
pub(crate) struct RoomShare {
    room: Arc<Room>,
    id: u64,
}

impl RoomShare {
    /// Waits until the share holds `bytes`.
    async fn grow(&self, bytes: usize) {
        loop {
            let mut freed = pin!(self.room.freed.notified());
            freed.as_mut().enable();
            if self.room.try_grow(self.id, bytes) {
                return;
            }
            tokio::select! {
                () = freed => {}
                () = tokio::time::sleep(Duration::from_millis(LOOK_AGAIN_MS)) => {}
            }
        }
    }

    /// Records that `bytes` are in memory now. Waits if the reservation was taken back meanwhile.
    pub(crate) async fn fill(&self, bytes: usize) {
        let is_reserved = {
            let mut table = self.room.table.lock();
            let caller_max = self.room.caller_max;
            table.holds.get_mut(&self.id).is_none_or(|hold| {
                hold.used = bytes.min(caller_max).min(hold.reserved.max(hold.used));
                bytes.min(caller_max) <= hold.reserved
            })
        };
        if !is_reserved {
            self.grow(bytes).await;
            if let Some(hold) = self.room.table.lock().holds.get_mut(&self.id) {
                hold.used = hold.reserved;
            }
        }
    }

    /// Gives back what is above `bytes`: the body or page has its final size.
    pub(crate) fn settle(&self, bytes: usize) {
        if let Some(hold) = self.room.table.lock().holds.get_mut(&self.id) {
            hold.reserved = hold.reserved.min(bytes);
            hold.used = hold.reserved;
        }
        self.room.freed.notify_waiters();
    }
}

impl Drop for RoomShare {
    fn drop(&mut self) {
        self.room.table.lock().holds.remove(&self.id);
        self.room.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::fairness::{BodyPace, PlaceBounds, Places};

    fn caller(last: u8) -> CallerKey {
        CallerKey::of_address([127, 0, 0, last].into())
    }

    /// With a patience of zero every peer is slow at once, with a long one none is.
    fn places(patience_ms: u64) -> Arc<Places> {
        let pace = BodyPace { patience_ms, bytes_per_second: 1 };
        Places::new(PlaceBounds { max: 8, waiting_max: 8, caller_max: 8, pace }, Arc::default())
    }

    fn now<T>(awaited: impl Future<Output = T>) -> Option<T> {
        awaited.now_or_never()
    }

    #[tokio::test]
    async fn one_caller_holds_its_share_and_no_more() {
        let room = Room::new(100, 50);
        let first = now(room.reserve(caller(1), None, 50)).unwrap();
        assert!(now(room.reserve(caller(1), None, 1)).is_none());
        let second = now(room.reserve(caller(2), None, 1000)).unwrap();
        assert!(now(room.reserve(caller(3), None, 1)).is_none(), "all is taken");
        second.settle(20);
        let third = now(room.reserve(caller(3), None, 30)).unwrap();
        drop((first, second, third));
        assert_eq!(room.table.lock().holds.len(), 0);
    }

    #[tokio::test]
    async fn what_a_slow_peer_announced_is_taken_back_and_what_it_sent_is_not() {
        let (room, places) = (Room::new(100, 100), places(0));
        let place = places.arrive(caller(1));
        place.request(true);
        let slow = now(room.reserve(caller(1), Some(place.clone()), 100)).unwrap();
        now(slow.fill(30)).unwrap();
        let other = now(room.reserve(caller(2), None, 70)).unwrap();
        // More of the slow body arrives after all, and waits.
        assert!(now(slow.fill(40)).is_none());
        drop(other);
        now(slow.fill(40)).unwrap();
        assert_eq!(room.table.lock().held(None), 40);
    }

    #[tokio::test]
    async fn a_slow_peer_that_fills_the_room_is_sent_away() {
        for (patience_ms, sent_away) in [(0, true), (3_600_000, false)] {
            let (room, places) = (Room::new(100, 100), places(patience_ms));
            let place = places.arrive(caller(1));
            place.request(true);
            let held = now(room.reserve(caller(1), Some(place.clone()), 60)).unwrap();
            now(held.fill(60)).unwrap();
            assert!(now(room.reserve(caller(1), None, 50)).is_none());
            assert_eq!(now(place.sent_away()).is_some(), sent_away);
        }
    }

    #[tokio::test]
    async fn a_caller_that_holds_more_gives_way_to_one_that_holds_less() {
        let (room, places) = (Room::new(100, 100), places(3_600_000));
        let place = places.arrive(caller(1));
        place.request(true);
        let held = now(room.reserve(caller(1), Some(place.clone()), 100)).unwrap();
        now(held.fill(100)).unwrap();
        let waiting = room.reserve(caller(2), None, 10);
        let mut waiting = std::pin::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none() && now(place.sent_away()).is_some());
        drop(held);
        let share = tokio::time::timeout(Duration::from_secs(3600), waiting).await;
        assert!(share.is_ok());
    }

    #[tokio::test]
    async fn of_bodies_that_wait_for_one_another_the_newest_gives_way() {
        let (room, places) = (Room::new(100, 100), places(3_600_000));
        let (one, two) = (places.arrive(caller(1)), places.arrive(caller(2)));
        one.request(true);
        two.request(true);
        let first = now(room.reserve(caller(1), Some(one.clone()), 50)).unwrap();
        let second = now(room.reserve(caller(2), Some(two.clone()), 50)).unwrap();
        now(first.fill(50)).unwrap();
        now(second.fill(50)).unwrap();
        assert!(now(first.fill(60)).is_none() && now(two.sent_away()).is_none(), "the other may still end");
        assert!(now(second.fill(60)).is_none());
        assert!(now(two.sent_away()).is_some() && now(one.sent_away()).is_none());
        drop(second);
        assert!(now(first.fill(60)).is_some());
    }
}
