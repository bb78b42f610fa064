//! Connections that wait for a request: new ones, in their TLS handshake or before their first request, and old ones
//! between two. They hold places and do nothing, so when all places are taken one of them has to go.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// All connections that wait, by when they began to.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    turn: u64,
    by_turn: BTreeMap<u64, (IpAddr, Arc<Notify>)>,
}

impl Waiting {
    pub(crate) fn arrive(self: &Arc<Self>, addr: IpAddr) -> Place {
        let place = Place {
            waiting: self.clone(),
            addr,
            told: Arc::new(Notify::new()),
            turn: Mutex::new(None),
            served: AtomicBool::new(false),
        };
        place.wait();
        place
    }

    /// Tells the one that has waited longest to go, of the address that has most of them: whoever fills the places loses
    /// their own first. False if nobody waits.
    pub(crate) fn send_one_away(&self) -> bool {
        let mut list = self.lock();
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (addr, _) in list.by_turn.values() {
            *counts.entry(*addr).or_default() += 1;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        let longest = list.by_turn.iter().find(|(_, (addr, _))| counts.get(addr) == Some(&most));
        let Some(turn) = longest.map(|(turn, _)| *turn) else { return false };
        if let Some((addr, told)) = list.by_turn.remove(&turn) {
            tracing::debug!(%addr, "a connection that sent no request made room for another");
            told.notify_one();
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Place {
    waiting: Arc<Waiting>,
    addr: IpAddr,
    told: Arc<Notify>,
    /// Its entry in the list, unless a request is in hand.
    turn: Mutex<Option<u64>>,
    served: AtomicBool,
}

impl Place {
    /// Until somebody else needs the place.
    pub(crate) async fn told_to_go(&self) {
        self.told.notified().await;
    }

    /// Whether it ever had a request: then it may have an answer that is still to be written.
    pub(crate) fn has_served(&self) -> bool {
        self.served.load(Relaxed)
    }

    /// A request has come. It is nobody's to send away until it is answered.
    pub(crate) fn serve(&self) {
        self.served.store(true, Relaxed);
        if let Some(turn) = self.turn().take() {
            self.waiting.lock().by_turn.remove(&turn);
        }
    }

    /// Answered: it waits for the next one, behind everybody who waits already.
    pub(crate) fn wait(&self) {
        let mut own = self.turn();
        let mut list = self.waiting.lock();
        list.turn += 1;
        let turn = list.turn;
        list.by_turn.insert(turn, (self.addr, self.told.clone()));
        if let Some(old) = own.replace(turn) {
            list.by_turn.remove(&old);
        }
    }

    fn turn(&self) -> MutexGuard<'_, Option<u64>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(turn) = self.turn().take() {
            self.waiting.lock().by_turn.remove(&turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn addr(last: u8) -> IpAddr {
        [127, 0, 0, last].into()
    }

    fn is_told(place: &Place) -> bool {
        place.told_to_go().now_or_never().is_some()
    }

    #[test]
    fn the_one_that_has_waited_longest_goes_first() {
        let waiting = Arc::new(Waiting::default());
        let places: Vec<_> = (0..3).map(|_| waiting.arrive(addr(1))).collect();
        // The first has a request and then waits again: now it is the last.
        places[0].serve();
        places[0].wait();
        assert!(waiting.send_one_away() && is_told(&places[1]));
        assert!(waiting.send_one_away() && is_told(&places[2]));
        assert!(waiting.send_one_away() && is_told(&places[0]));
        assert!(!waiting.send_one_away());
    }

    #[test]
    fn whoever_is_served_or_gone_is_left_alone() {
        let waiting = Arc::new(Waiting::default());
        let (served, gone) = (waiting.arrive(addr(1)), waiting.arrive(addr(1)));
        served.serve();
        drop(gone);
        assert!(!waiting.send_one_away() && !is_told(&served));
    }

    #[test]
    fn an_address_with_many_loses_its_own_first() {
        let waiting = Arc::new(Waiting::default());
        let alone = waiting.arrive(addr(1));
        let crowd: Vec<_> = (0..3).map(|_| waiting.arrive(addr(2))).collect();
        assert!(waiting.send_one_away() && waiting.send_one_away());
        assert_eq!(crowd.iter().filter(|place| is_told(place)).count(), 2);
        assert!(!is_told(&alone));
    }
}
