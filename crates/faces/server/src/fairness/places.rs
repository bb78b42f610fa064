//! The places of HTTP connections, and which connection loses its place when all are taken.
//!
//! A connection is *counted* if it has one of `max` places. Connections that find none are accepted all the same, up to
//! `waiting_max`: there a probe is answered, and any other request waits for a place. So the server always accepts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::fairness::place::{BodyPace, ConnectionPlace, PlaceSignals};
use crate::fairness::{CallerKey, EvictionReason, Evictions};

#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceBounds {
    /// Connections with a place.
    pub(crate) max: usize,
    /// Connections without a place.
    pub(crate) waiting_max: usize,
    /// A caller with more places than this is the first to lose one.
    pub(crate) caller_max: usize,
    pub(crate) pace: BodyPace,
}

/// The party or resource that a connection waits for. In `Work` the server itself is busy with the request: such a
/// connection is never evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for the peer: for a TLS handshake, for a request, or for reading the rest of the last response.
    Request,
    /// Waits for the peer: for the body of a request.
    Body,
    /// Waits for the server: for a place, a reader of the store, or memory for a body or a page.
    Waiting,
    Work,
}

#[derive(Debug)]
pub(super) struct PlaceEntry {
    pub(super) caller: CallerKey,
    pub(super) phase: Phase,
    /// Orders connections by when their phase began.
    turn: u64,
    counted: bool,
    signals: Arc<PlaceSignals>,
}

/// How much is lost by closing a connection now; the connection with the least loss goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    /// No request is in progress, and none is expected at once.
    Nothing,
    /// The peer keeps the server waiting, or the request has not begun.
    Little,
    /// A body or a response is on its way, or the connection is new and its first request is expected.
    Much,
}

impl PlaceEntry {
    /// Whether the peer sends or reads more slowly than is allowed while others wait.
    fn is_slow(&self) -> bool {
        let waits_for_peer = match self.phase {
            Phase::Body => true,
            Phase::Request => self.signals.is_unwritten(),
            Phase::Waiting | Phase::Work => false,
        };
        waits_for_peer && self.signals.is_late()
    }

    /// Returns `None` while the server works on the request.
    fn loss(&self) -> Option<Loss> {
        match self.phase {
            Phase::Work => None,
            Phase::Waiting => Some(Loss::Little),
            Phase::Request if !self.signals.is_unwritten() => {
                let is_new = !self.signals.is_served() && !self.signals.is_late();
                Some(if is_new { Loss::Much } else { Loss::Nothing })
            }
            Phase::Request | Phase::Body if self.is_slow() => Some(Loss::Little),
            Phase::Request | Phase::Body => Some(Loss::Much),
        }
    }

    fn reason(&self) -> EvictionReason {
        match self.phase {
            Phase::Request if self.signals.is_unwritten() => EvictionReason::AnswerUnread,
            Phase::Request => EvictionReason::NoRequest,
            Phase::Body => EvictionReason::RequestBody,
            Phase::Waiting | Phase::Work => EvictionReason::Waiting,
        }
    }
}

#[derive(Debug, Default)]
struct PlaceTable {
    /// Also the number of the newest connection.
    turn: u64,
    counted: usize,
    entries: BTreeMap<u64, PlaceEntry>,
}

/// The reason for wanting a place.
enum Newcomer<'a> {
    /// A new connection that has sent nothing yet.
    Unknown,
    /// A request of this caller.
    Request(&'a CallerKey),
}

impl PlaceTable {
    /// Returns the counted connection to close for the newcomer: first one of a caller above its share, then one of the
    /// caller with most places, the smallest loss first. A body or response that is on its way is only given up for a
    /// request of a caller that has fewer places.
    fn victim(&self, newcomer: &Newcomer<'_>, bounds: &PlaceBounds) -> Option<u64> {
        let mut counts: HashMap<&CallerKey, usize> = HashMap::new();
        for entry in self.entries.values().filter(|entry| entry.counted) {
            *counts.entry(&entry.caller).or_default() += 1;
        }
        let own = match newcomer {
            Newcomer::Unknown => None,
            Newcomer::Request(caller) => Some(counts.get(caller).copied().unwrap_or(0)),
        };
        let candidates = self.entries.iter().filter(|(_, entry)| entry.counted).filter_map(|(id, entry)| {
            let loss = entry.loss()?;
            let count = counts.get(&entry.caller).copied().unwrap_or(0);
            if loss == Loss::Much && own.is_none_or(|own| count <= own + 1) {
                return None;
            }
            let within_share = count <= bounds.caller_max;
            Some(((within_share, within_share && loss == Loss::Much, Reverse(count), loss, entry.turn), *id))
        });
        candidates.min().map(|(_, id)| id)
    }

    /// The same among the connections that wait without a place.
    fn waiting_victim(&self) -> Option<u64> {
        let waits = |entry: &&PlaceEntry| !entry.counted && entry.phase != Phase::Work;
        let mut counts: HashMap<&CallerKey, usize> = HashMap::new();
        for entry in self.entries.values().filter(waits) {
            *counts.entry(&entry.caller).or_default() += 1;
        }
        let waiting = self.entries.iter().filter(|(_, entry)| waits(entry));
        let by_count = waiting.map(|(id, entry)| ((Reverse(counts.get(&entry.caller)), entry.turn), *id));
        by_count.min().map(|(_, id)| id)
    }

    fn remove(&mut self, id: u64) -> Option<PlaceEntry> {
        let entry = self.entries.remove(&id)?;
        self.counted -= usize::from(entry.counted);
        Some(entry)
    }
}

#[derive(Debug)]
pub(crate) struct Places {
    bounds: PlaceBounds,
    evictions: Arc<Evictions>,
    table: Mutex<PlaceTable>,
    /// Notified when a place has become free.
    pub(super) freed: Notify,
}

impl Places {
    pub(crate) fn new(bounds: PlaceBounds, evictions: Arc<Evictions>) -> Arc<Places> {
        Arc::new(Places { bounds, evictions, table: Mutex::default(), freed: Notify::new() })
    }

    /// Registers a connection that was just accepted.
    pub(crate) fn arrive(self: &Arc<Places>, caller: CallerKey) -> Arc<ConnectionPlace> {
        let mut table = self.table.lock();
        let victim = if table.counted < self.bounds.max {
            None
        } else if let Some(victim) = table.victim(&Newcomer::Unknown, &self.bounds) {
            Some(victim)
        } else if table.entries.len() - table.counted >= self.bounds.waiting_max {
            table.waiting_victim()
        } else {
            None
        };
        let evicted = victim.and_then(|victim| table.remove(victim));
        table.turn += 1;
        let (id, signals) = (table.turn, Arc::new(PlaceSignals::new(self.bounds.pace)));
        let counted = table.counted < self.bounds.max;
        table.counted += usize::from(counted);
        let entry = PlaceEntry { caller, phase: Phase::Request, turn: id, counted, signals: signals.clone() };
        table.entries.insert(id, entry);
        drop(table);
        self.tell(evicted);
        Arc::new(ConnectionPlace::new(self.clone(), id, signals))
    }

    /// Takes a place for a request of `caller`, whose connection goes on in `phase`. Returns false if there is none:
    /// then the request waits.
    pub(super) fn count(&self, id: u64, caller: &CallerKey, phase: Phase) -> bool {
        let mut table = self.table.lock();
        let Some(entry) = table.entries.get_mut(&id) else { return false };
        entry.caller = caller.clone();
        let mut evicted = None;
        if !entry.counted {
            if table.counted >= self.bounds.max {
                let victim = table.victim(&Newcomer::Request(caller), &self.bounds);
                evicted = victim.and_then(|victim| table.remove(victim));
            }
            let has_room = table.counted < self.bounds.max;
            table.counted += usize::from(has_room);
            if let Some(entry) = table.entries.get_mut(&id) {
                entry.counted = has_room;
            }
        }
        let counted = table.entries.get(&id).is_some_and(|entry| entry.counted);
        drop(table);
        self.tell(evicted);
        self.enter(id, if counted { phase } else { Phase::Waiting });
        counted
    }

    /// Begins a phase.
    pub(super) fn enter(&self, id: u64, phase: Phase) {
        let mut table = self.table.lock();
        table.turn += 1;
        let turn = table.turn;
        if let Some(entry) = table.entries.get_mut(&id)
            && entry.phase != phase
        {
            (entry.phase, entry.turn) = (phase, turn);
            entry.signals.restart();
        }
    }

    pub(super) fn phase(&self, id: u64) -> Option<Phase> {
        self.table.lock().entries.get(&id).map(|entry| entry.phase)
    }

    pub(super) fn is_slow(&self, id: u64) -> bool {
        self.table.lock().entries.get(&id).is_some_and(PlaceEntry::is_slow)
    }

    /// Whether closing the connection would interrupt the server's own work.
    pub(super) fn is_working(&self, id: u64) -> bool {
        self.phase(id) == Some(Phase::Work)
    }

    pub(super) fn send_away(&self, id: u64) {
        let evicted = self.table.lock().remove(id);
        self.tell(evicted);
    }

    pub(super) fn leave(&self, id: u64) {
        if self.table.lock().remove(id).is_some() {
            self.freed.notify_waiters();
        }
    }

    pub(super) fn timed_out(&self, id: u64) {
        let caller = self.table.lock().entries.get(&id).map(|entry| entry.caller.clone());
        if let Some(caller) = caller {
            self.evictions.count(EvictionReason::AnswerTimeout, &caller);
        }
    }

    fn tell(&self, evicted: Option<PlaceEntry>) {
        if let Some(entry) = evicted {
            entry.signals.tell();
            self.evictions.count(entry.reason(), &entry.caller);
            self.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const SLOW_AT_ONCE: u64 = 0;
    const NEVER_SLOW: u64 = 3_600_000;

    fn caller(last: u8) -> CallerKey {
        CallerKey::of_address([127, 0, 0, last].into())
    }

    fn places(max: usize, waiting_max: usize, patience_ms: u64) -> Arc<Places> {
        let pace = BodyPace { patience_ms, bytes_per_second: 1 };
        Places::new(PlaceBounds { max, waiting_max, caller_max: max.div_ceil(2), pace }, Arc::default())
    }

    fn is_told(place: &ConnectionPlace) -> bool {
        place.sent_away().now_or_never().is_some()
    }

    /// Whether the connection gets a place for its request at once.
    fn is_counted(place: &ConnectionPlace, last: u8) -> bool {
        place.count(&caller(last), true).now_or_never().is_some_and(|counted| counted.is_ok())
    }

    #[test]
    fn the_one_that_has_waited_longest_goes_first() {
        let places = places(3, 3, SLOW_AT_ONCE);
        let first: Vec<_> = (0..3).map(|_| places.arrive(caller(1))).collect();
        // The first connection has a request and then waits again: now it is the last in line.
        first[0].request(false);
        first[0].answered();
        let _more: Vec<_> = (0..2).map(|_| places.arrive(caller(1))).collect();
        assert_eq!(first.iter().map(|place| is_told(place)).collect::<Vec<_>>(), [false, true, true]);
    }

    #[tokio::test]
    async fn a_request_that_is_worked_on_is_left_alone_and_newcomers_wait() {
        let places = places(1, 2, SLOW_AT_ONCE);
        let working = places.arrive(caller(1));
        working.request(false);
        let newcomers: Vec<_> = (0..3).map(|_| places.arrive(caller(2))).collect();
        assert!(!is_told(&working) && is_told(&newcomers[0]), "two may wait");
        assert!(!is_counted(&newcomers[1], 2));
        drop(working);
        assert!(is_counted(&newcomers[1], 2));
    }

    #[test]
    fn an_address_with_many_loses_its_own_first() {
        let places = places(4, 4, SLOW_AT_ONCE);
        let alone = places.arrive(caller(1));
        let crowd: Vec<_> = (0..3).map(|_| places.arrive(caller(2))).collect();
        let _more: Vec<_> = (0..2).map(|_| places.arrive(caller(3))).collect();
        assert_eq!(crowd.iter().filter(|place| is_told(place)).count(), 2);
        assert!(!is_told(&alone));
    }

    #[tokio::test]
    async fn a_body_on_its_way_is_lost_to_a_caller_with_fewer_places_and_to_nobody_else() {
        let places = places(4, 4, NEVER_SLOW);
        let bodies: Vec<_> = (0..4).map(|_| places.arrive(caller(1))).collect();
        for body in &bodies {
            body.request(true);
            assert!(is_counted(body, 1));
        }
        let same = places.arrive(caller(1));
        assert!(!is_counted(&same, 1) && !bodies.iter().any(|body| is_told(body)));
        let other = places.arrive(caller(2));
        assert!(is_counted(&other, 2));
        assert_eq!(bodies.iter().map(|body| is_told(body)).collect::<Vec<_>>(), [true, false, false, false]);
    }

    #[test]
    fn a_slow_body_is_lost_to_anybody() {
        let places = places(2, 2, SLOW_AT_ONCE);
        let bodies: Vec<_> = (0..2).map(|_| places.arrive(caller(1))).collect();
        for body in &bodies {
            body.request(true);
        }
        let same = places.arrive(caller(1));
        assert!(is_counted(&same, 1) && is_told(&bodies[0]) && !is_told(&bodies[1]));
    }

    #[test]
    fn one_that_has_just_come_is_not_closed_for_the_next() {
        let places = places(1, 1, NEVER_SLOW);
        let (first, second) = (places.arrive(caller(1)), places.arrive(caller(1)));
        assert!(!is_told(&first) && !is_told(&second));
        let third = places.arrive(caller(1));
        assert!(is_told(&second) && !is_told(&first) && !is_told(&third), "only so many wait");
    }
}
