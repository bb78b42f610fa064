//! The seats of WebSockets, in two pools: one for connections that have not authenticated yet, one for all others.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::fairness::{CallerKey, EvictionReason, Evictions};

/// Which connection loses its seat when all are taken and one more arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeatRule {
    /// Always the oldest connection of the caller with most seats: a connection without a token is owed nothing.
    Oldest,
    /// The newest connection of the caller with most seats, if the newcomer's caller would still have fewer with one
    /// more. Otherwise the newcomer is refused. Over time every caller gets an equal part of the seats it asks for.
    FairShare,
}

impl SeatRule {
    fn reason(self) -> EvictionReason {
        match self {
            SeatRule::Oldest => EvictionReason::Unauthenticated,
            SeatRule::FairShare => EvictionReason::Share,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Seats {
    max: usize,
    rule: SeatRule,
    evictions: Arc<Evictions>,
    table: Mutex<SeatTable>,
    /// Connections that are open, including those that were evicted and have not closed yet.
    alive: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct SeatTable {
    /// Numbers are given in order of arrival.
    last: u64,
    taken: BTreeMap<u64, (CallerKey, Arc<Notify>)>,
}

impl SeatTable {
    fn victim(&self, newcomer: &CallerKey, rule: SeatRule) -> Option<u64> {
        let mut counts: HashMap<&CallerKey, usize> = HashMap::new();
        for (caller, _) in self.taken.values() {
            *counts.entry(caller).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        let mut of_largest =
            self.taken.iter().filter(|(_, (caller, _))| counts.get(caller) == Some(&most)).map(|(id, _)| *id);
        match rule {
            SeatRule::Oldest => of_largest.next(),
            SeatRule::FairShare if most > counts.get(newcomer).copied().unwrap_or(0) + 1 => {
                of_largest.next_back()
            }
            SeatRule::FairShare => None,
        }
    }
}

impl Seats {
    pub(crate) fn new(max: usize, rule: SeatRule, evictions: Arc<Evictions>) -> Arc<Seats> {
        Arc::new(Seats {
            max: max.max(1),
            rule,
            evictions,
            table: Mutex::default(),
            alive: watch::Sender::new(0),
        })
    }

    pub(crate) fn taken(&self) -> usize {
        self.table.lock().taken.len()
    }

    /// Takes a seat, if need be that of another connection. Returns `None` if there is none for this caller.
    pub(crate) fn claim(self: &Arc<Seats>, caller: CallerKey) -> Option<Seat> {
        let mut table = self.table.lock();
        let mut evicted = None;
        if table.taken.len() >= self.max {
            let victim = table.victim(&caller, self.rule)?;
            evicted = table.taken.remove(&victim);
        }
        table.last += 1;
        let (id, told) = (table.last, Arc::new(Notify::new()));
        table.taken.insert(id, (caller, told.clone()));
        drop(table);
        if let Some((caller, told)) = evicted {
            told.notify_one();
            self.evictions.count(self.rule.reason(), &caller);
        }
        self.alive.send_modify(|alive| *alive += 1);
        Some(Seat { seats: self.clone(), id, told })
    }

    /// Whether the evicted connections that have not closed yet outnumber the seats.
    fn is_overrun(&self) -> bool {
        let taken = self.table.lock().taken.len();
        self.alive.borrow().saturating_sub(taken) > self.max
    }

    /// Waits until every connection has ended.
    pub(crate) async fn all_left(&self) {
        // The sender is `self`, so this cannot fail.
        let _ = self.alive.subscribe().wait_for(|alive| *alive == 0).await;
    }
}

/// The seat of one connection, kept as long as the connection lives.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    id: u64,
    told: Arc<Notify>,
}

impl Seat {
    /// Waits until another connection needs the seat. For one waiter.
    pub(crate) async fn sent_away(&self) {
        self.told.notified().await;
    }

    /// Whether so many evicted connections are still open that none of them can be given time to say goodbye.
    pub(crate) fn must_hurry(&self) -> bool {
        self.seats.is_overrun()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.table.lock().taken.remove(&self.id);
        self.seats.alive.send_modify(|alive| *alive = alive.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn caller(last: u8) -> CallerKey {
        CallerKey::of_address([127, 0, 0, last].into())
    }

    fn seats(max: usize, rule: SeatRule) -> Arc<Seats> {
        Seats::new(max, rule, Arc::default())
    }

    fn is_told(seat: &Seat) -> bool {
        seat.sent_away().now_or_never().is_some()
    }

    #[test]
    fn without_a_token_the_oldest_of_the_largest_crowd_goes() {
        let seats = seats(4, SeatRule::Oldest);
        let alone = seats.claim(caller(1)).unwrap();
        let crowd: Vec<_> = (0..6).map(|_| seats.claim(caller(2)).unwrap()).collect();
        let told: Vec<_> = crowd.iter().map(is_told).collect();
        assert_eq!(told, [true, true, true, false, false, false]);
        assert!(!is_told(&alone));
    }

    #[test]
    fn a_caller_with_all_seats_gives_half_of_them_to_another_and_no_more() {
        let seats = seats(4, SeatRule::FairShare);
        let first: Vec<_> = (0..4).map(|_| seats.claim(caller(1)).unwrap()).collect();
        assert!(seats.claim(caller(1)).is_none(), "nobody has more than this caller");
        let second: Vec<_> = (0..2).map(|_| seats.claim(caller(2)).unwrap()).collect();
        assert_eq!(first.iter().map(is_told).collect::<Vec<_>>(), [false, false, true, true]);
        assert!(seats.claim(caller(2)).is_none(), "they have the same now");
        drop(second);
        assert!(seats.claim(caller(1)).is_some(), "seats come back");
    }

    #[test]
    fn the_end_of_all_is_waited_for_also_of_those_sent_away() {
        let seats = seats(1, SeatRule::Oldest);
        let (first, second) = (seats.claim(caller(1)).unwrap(), seats.claim(caller(1)).unwrap());
        drop(second);
        assert!(seats.all_left().now_or_never().is_none());
        drop(first);
        assert!(seats.all_left().now_or_never().is_some());
    }
}
