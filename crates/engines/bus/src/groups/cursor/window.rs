//! The events that a group was sent, or that were held back, and that are not done; in the order of their offsets.
//!
//! A method that is given an offset which is not in the window does nothing: a late ack, say, is no mistake. A caller
//! for whom that would be one looks first (`get`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use millrace_model::{Event, Filter, Mono, Timestamp};

mod by_key;

pub(crate) use by_key::KeyQueues;

use super::open::{Lease, Open, OpenState};
use super::read_ahead::Fetched;
use crate::groups::group::CursorRef;
use crate::groups::sticky::KeyHash;
use crate::interface::input::ConnId;

#[derive(Debug, Default)]
pub(crate) struct Window {
    open: BTreeMap<u64, Open>,
    /// Offsets in `open` that may be sent again now.
    ready: BTreeSet<u64>,
    /// Offsets in `open` that the next flush turns into dead letters.
    to_dead_letter: VecDeque<u64>,
    /// Every event up to here has left the events read ahead or is done. In a sticky group some may be held back in
    /// `open`, unsent.
    sent_through: u64,
    /// Events that are done, beyond the commit, only because a higher offset was acked. Their consumer may still refuse
    /// them.
    implicit: BTreeMap<u64, Implicit>,
    /// How many deliveries there were: each gets the next number.
    deliveries: u64,
    /// Order per key; `Some` while the group is sticky.
    keyed: Option<KeyQueues>,
}

/// State of an event that was acked by a higher offset, kept in case its consumer still refuses it.
#[derive(Clone, Copy, Debug)]
struct Implicit {
    by: ConnId,
    attempts: u32,
    key: Option<KeyHash>,
}

/// A delivery that has begun.
pub(crate) struct Leased {
    pub(crate) event: Arc<Event>,
    pub(crate) attempts: u32,
}

impl Window {
    pub(super) fn at(sent_through: u64) -> Window {
        Window { sent_through, ..Window::default() }
    }

    /// Returns an empty window at another place, which keeps order per key if this one does.
    pub(super) fn moved(&self, sent_through: u64) -> Window {
        Window { keyed: self.keyed.as_ref().map(|_| KeyQueues::default()), ..Window::at(sent_through) }
    }

    pub(crate) fn get(&self, offset: u64) -> Option<&Open> {
        self.open.get(&offset)
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn offsets(&self) -> impl Iterator<Item = u64> + '_ {
        self.open.keys().copied()
    }

    pub(super) fn lowest(&self) -> Option<u64> {
        self.open.first_key_value().map(|(offset, _)| *offset)
    }

    pub(super) fn highest(&self) -> Option<u64> {
        self.open.last_key_value().map(|(offset, _)| *offset)
    }

    /// The events that were sent or held back and are not done, in the order of their offsets.
    pub(crate) fn open_events(&self) -> impl Iterator<Item = (u64, &Open)> {
        self.iter()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Open)> {
        self.open.iter().map(|(offset, open)| (*offset, open))
    }

    /// The events that are being read again.
    pub(crate) fn refetching(&self) -> impl Iterator<Item = u64> + '_ {
        self.iter().filter(|(_, open)| open.state() == OpenState::Refetching).map(|(offset, _)| offset)
    }

    /// Checks the lists that mirror the states of the events, all of which lie below `unsent`.
    pub(super) fn check(&self, at: CursorRef, unsent: u64) {
        let in_state =
            |state| self.iter().filter(move |(_, open)| open.state() == state).map(|(offset, _)| offset);
        assert!(self.ready.iter().copied().eq(in_state(OpenState::Ready)), "events of {at:?} that are ready");
        let to_dead_letter: BTreeSet<u64> = self.to_dead_letter.iter().copied().collect();
        assert_eq!(to_dead_letter.len(), self.to_dead_letter.len(), "{at:?} gives an event up twice");
        assert!(to_dead_letter.into_iter().eq(in_state(OpenState::ToDeadLetter)), "dead letters of {at:?}");
        assert!(self.highest().is_none_or(|highest| highest < unsent), "{at:?} has sent what is to be sent");
        assert!(
            self.sent_through < unsent,
            "{at:?} has sent {}, and {unsent} is to be sent",
            self.sent_through
        );
        let undone = self.implicit.keys().find(|offset| self.open.contains_key(offset));
        assert!(undone.is_none(), "offset {undone:?} of {at:?} is done and is not");
        self.check_keys(at);
    }

    pub(crate) fn next_ready(&self) -> Option<u64> {
        self.ready.first().copied()
    }

    pub(crate) fn ready(&self) -> impl Iterator<Item = u64> + '_ {
        self.ready.iter().copied()
    }

    pub(crate) fn sent_through(&self) -> u64 {
        self.sent_through
    }

    /// Returns the offset up to which every event was sent since the server started, or is done.
    pub(super) fn delivered_through(&self) -> u64 {
        // Only in a sticky group may an event wait while later ones are sent.
        let unsent = self.open.iter().filter(|(_, open)| self.keyed.is_some() && !open.was_sent());
        unsent.map(|(offset, _)| *offset).next().map_or(self.sent_through, |first| first - 1)
    }

    /// Notes that an event has left the events read ahead.
    pub(super) fn passed(&mut self, offset: u64) {
        self.sent_through = self.sent_through.max(offset);
    }

    /// Takes a fresh event that is about to be leased.
    pub(super) fn open_to_lease(&mut self, fetched: Fetched) {
        self.open.insert(fetched.offset(), Open::from_fetched(fetched, OpenState::Ready, None));
    }

    /// Leases an event to a connection. The body of an event of more than `bytes_max` is dropped from memory; its key
    /// is kept, because the group may become sticky while the event is in flight. Returns `None` if there is no such
    /// event, or its body is not in memory.
    pub(super) fn lease(
        &mut self,
        offset: u64,
        lease: Lease,
        bytes_max: usize,
        hash: impl Fn(&str) -> KeyHash,
    ) -> Option<Leased> {
        let open = self.open.get_mut(&offset)?;
        let event = open.event().cloned()?;
        self.deliveries += 1;
        if let Some(keyed) = self.keyed.as_mut().filter(|_| !open.was_sent()) {
            keyed.count_sent(open.kept_bytes());
        }
        open.lease(lease, self.deliveries);
        let attempts = open.attempts();
        if event.body.bytes() > bytes_max {
            open.learn_key(hash);
            open.drop_body();
        }
        self.ready.remove(&offset);
        Some(Leased { event, attempts })
    }

    /// Removes an event, because it is done or becomes a dead letter.
    pub(super) fn remove(&mut self, offset: u64) -> Option<Open> {
        let open = self.open.remove(&offset)?;
        self.ready.remove(&offset);
        self.free_key(offset, &open);
        Some(open)
    }

    /// Removes an event because its holder acked a higher offset.
    pub(super) fn remove_implicitly(&mut self, offset: u64, conn: ConnId) -> Option<Open> {
        let open = self.remove(offset)?;
        self.implicit.insert(offset, Implicit { by: conn, attempts: open.attempts(), key: open.key() });
        Some(open)
    }

    /// Undoes an implicit completion that the commit has not passed. Returns false if there was none by this
    /// connection. The event is in no list until `Cursor::requeue` decides what follows.
    pub(super) fn reopen(&mut self, offset: u64, conn: ConnId) -> bool {
        let Some(Implicit { attempts, key, .. }) =
            self.implicit.get(&offset).copied().filter(|done| done.by == conn)
        else {
            return false;
        };
        self.requeue_key(offset, key);
        self.open.insert(offset, Open::reopened(conn, attempts, key));
        self.implicit.remove(&offset);
        true
    }

    /// Forgets implicit completions that the commit has passed.
    pub(super) fn forget_implicit(&mut self, committed: u64) {
        self.implicit = self.implicit.split_off(&(committed + 1));
    }

    /// Records that the consumer could not handle the event (NACK).
    pub(crate) fn refuse(&mut self, offset: u64) {
        if let Some(open) = self.open.get_mut(&offset) {
            open.refuse(self.deliveries);
        }
    }

    pub(super) fn give_back(&mut self, offset: u64) {
        if let Some(open) = self.open.get_mut(&offset) {
            open.give_back();
            self.ready.insert(offset);
        }
    }

    pub(super) fn set_reason(&mut self, offset: u64, reason: &str) {
        if let Some(open) = self.open.get_mut(&offset) {
            open.set_reason(reason);
        }
    }

    pub(super) fn make_ready(&mut self, offset: u64) {
        if let Some(open) = self.open.get_mut(&offset) {
            open.set_state(OpenState::Ready);
            self.ready.insert(offset);
        }
    }

    /// Lets an event wait; `not_before` is given unless the wait need not outlast a restart.
    pub(super) fn wait(&mut self, offset: u64, until: Mono, not_before: Option<Timestamp>) {
        let Some(open) = self.open.get_mut(&offset) else { return };
        match not_before {
            Some(not_before) => open.wait(until, not_before),
            None => open.set_state(OpenState::Waiting { until }),
        }
    }

    /// Lists an event to become a dead letter.
    pub(super) fn give_up(&mut self, offset: u64) {
        if let Some(open) = self.open.get_mut(&offset) {
            open.set_state(OpenState::ToDeadLetter);
            self.to_dead_letter.push_back(offset);
        }
    }

    pub(crate) fn has_dead_letters(&self) -> bool {
        !self.to_dead_letter.is_empty()
    }

    /// Returns the next event that is to become a dead letter.
    pub(crate) fn next_dead_letter(&self) -> Option<(u64, &Open)> {
        let offset = self.to_dead_letter.front().copied()?;
        Some((offset, self.open.get(&offset)?))
    }

    pub(super) fn pop_dead_letter(&mut self) -> Option<(u64, Open)> {
        let offset = self.to_dead_letter.pop_front()?;
        Some((offset, self.remove(offset)?))
    }

    /// Takes back an event whose dead letter was not written.
    pub(super) fn put_back_dead_letter(&mut self, offset: u64, open: Open) {
        self.requeue_key(offset, open.key());
        if let Some(keyed) = self.keyed.as_mut().filter(|_| !open.was_sent()) {
            keyed.count_unsent(open.kept_bytes());
        }
        self.open.insert(offset, open);
        self.to_dead_letter.push_front(offset);
    }

    /// Marks an event as being read again.
    pub(super) fn begin_refetch(&mut self, offset: u64) {
        self.ready.remove(&offset);
        if let Some(open) = self.open.get_mut(&offset) {
            open.set_state(OpenState::Refetching);
        }
    }

    /// Returns the connection's leases in offset order, with their deadlines.
    pub(crate) fn leased_to(&self, conn: ConnId) -> Vec<(u64, Mono)> {
        let leases = self.open.iter().filter_map(|(offset, open)| match open.state() {
            OpenState::Leased(lease) if lease.conn == conn => Some((*offset, lease.deadline)),
            _ => None,
        });
        leases.collect()
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = (u64, Lease)> + '_ {
        self.open.iter().filter_map(|(offset, open)| Some((*offset, open.current_lease()?)))
    }

    /// Returns the lower offsets that a cumulative ack of `offset` completes too: those that the connection holds and
    /// received before `offset`. Left out are events that were delivered again after `offset`, and events that were
    /// refused since `offset` was first delivered: the ack may have been sent before such an event came again.
    pub(crate) fn completed_below(&self, offset: u64, conn: ConnId) -> Vec<u64> {
        let Some(acked) = self.open.get(&offset).filter(|open| open.is_leased_to(conn)) else {
            return Vec::new();
        };
        let lower = self.open.range(..offset);
        lower.filter(|(_, open)| open.is_completed_with(acked, conn)).map(|(offset, _)| *offset).collect()
    }

    /// Returns the events that are not leased and do not match a new filter.
    pub(super) fn unwanted(&self, filter: &Filter) -> Vec<u64> {
        let unwanted = |open: &Open| {
            let free = matches!(
                open.state(),
                OpenState::Ready | OpenState::Parked | OpenState::Awaiting { .. } | OpenState::Waiting { .. }
            );
            free && open.event().is_some_and(|event| !filter.matches(event))
        };
        self.open.iter().filter(|(_, open)| unwanted(open)).map(|(offset, _)| *offset).collect()
    }

    /// Makes events ready whose wait is over. Returns those whose lease has expired.
    pub(super) fn wake(&mut self, now: Mono) -> Vec<u64> {
        let mut expired = Vec::new();
        for (offset, open) in &mut self.open {
            match open.state() {
                OpenState::Leased(lease) if lease.deadline <= now => expired.push(*offset),
                _ if open.wake(now) => {
                    self.ready.insert(*offset);
                }
                _ => {}
            }
        }
        expired
    }

    /// Returns the earliest moment at which a lease or a wait ends.
    pub(super) fn next_wake(&self) -> Option<Mono> {
        let ends = self.open.values().filter_map(|open| match open.state() {
            OpenState::Leased(lease) => Some(lease.deadline),
            OpenState::Waiting { until } => Some(until),
            _ => None,
        });
        ends.min()
    }
}
