//! Invariants that hold between two calls of the engine. The router keeps some sums beside the tables they are sums of,
//! because the sums are cheaper to ask: here both are compared.
//!
//! Checked after every input and turn in debug builds, so tests and the simulator run it all the time.

use std::collections::BTreeMap;

use crate::router::Router;
use crate::routing::pending::OutcomeTo;
use crate::timing::timers::Owner;

/// With more deliveries, requests and timers than this nothing is compared: every input would read them all.
const ENTRIES_MAX: usize = 512;

impl Router {
    /// Compares the sums that the router keeps with its tables. The cost grows with the size of the tables.
    ///
    /// # Panics
    ///
    /// If something differs, which is a bug of the engine.
    pub fn check_invariants(&self) {
        if self.deliveries.len() + self.pending.len() + self.timers.len() <= ENTRIES_MAX {
            self.check_capabilities();
            self.check_connections();
            self.timers.check_indexes();
        }
    }

    fn check_capabilities(&self) {
        let (mut asked, mut owes) = (BTreeMap::new(), BTreeMap::new());
        for (_, pending) in self.pending.all() {
            *owes.entry(pending.to).or_insert(0) += 1;
            if let OutcomeTo::Actor { capability, .. } = pending.requester {
                *asked.entry(capability).or_insert(0) += 1;
            }
        }
        let mut events = 0;
        for (id, one) in self.table.all() {
            let name = one.name();
            let waiting = self.mailbox(id).filter(|(_, delivery)| !delivery.handed).count();
            assert_eq!(one.waiting, waiting, "{name} counts other messages than its mailbox has");
            let asked = asked.get(&id).copied().unwrap_or_default();
            assert_eq!(one.asked, asked, "{name} counts other requests of its own than are pending");
            let owes = owes.get(&id).copied().unwrap_or_default();
            assert_eq!(one.owes, owes, "{name} counts other requests to it than are pending");
            events += one.events.len();
        }
        let counted = self.waiting_events.count;
        assert_eq!(counted, events, "{counted} events are said to wait for a mailbox, {events} do");
    }

    fn check_connections(&self) {
        let mut pending = 0;
        for (id, request) in self.pending.all() {
            if let OutcomeTo::Client(conn) = request.requester {
                let listed = self.conns.get(&conn).and_then(|conn| conn.waits.get(&request.delivery));
                assert_eq!(listed, Some(id), "a pending request is not in the list of {conn:?}");
                pending += 1;
            }
        }
        let listed: usize = self.conns.values().map(|conn| conn.waits.len()).sum();
        assert_eq!(listed, pending, "connections list {listed} requests, {pending} are pending");
        let mut timers = BTreeMap::new();
        for timer in self.timers.all.values() {
            if let Owner::Client(conn) = timer.owner {
                *timers.entry(conn).or_insert(0) += 1;
            }
        }
        for (id, conn) in &self.conns {
            let owned = timers.get(id).copied().unwrap_or_default();
            assert_eq!(conn.timers, owned, "{id:?} counts other timers than it has");
        }
    }
}
