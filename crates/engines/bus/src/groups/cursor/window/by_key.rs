//! Order per key: of the events of one key only the lowest that is not done may be sent. Kept while the group is
//! sticky.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_model::Event;

use super::Window;
use crate::groups::cursor::open::{Open, OpenState};
use crate::groups::cursor::read_ahead::Fetched;
use crate::groups::group::CursorRef;
use crate::groups::sticky::KeyHash;
use crate::interface::input::ConnId;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyQueues {
    /// Offsets in `open`, by key.
    queues: BTreeMap<KeyHash, BTreeSet<u64>>,
    /// Ready events of `open` whose key's member has no room, by member, so that they are not looked at before the
    /// member has room.
    awaiting: BTreeMap<ConnId, BTreeSet<u64>>,
    /// Events in `open` that were never sent, because their key or its member is busy.
    unsent: usize,
    /// Of those, how many have their bodies in memory, and the bytes of these bodies.
    bodies: usize,
    bodies_bytes: usize,
}

impl KeyQueues {
    fn is_busy(&self, key: KeyHash) -> bool {
        self.queues.contains_key(&key)
    }

    /// Counts an event that was never sent. `bytes` is given if its body is in memory.
    pub(super) fn count_unsent(&mut self, bytes: Option<usize>) {
        self.unsent += 1;
        self.count_body(bytes);
    }

    /// Stops counting an event as unsent: it goes to a member for the first time, or leaves `open`. `bytes` is given if
    /// its body was in memory.
    pub(super) fn count_sent(&mut self, bytes: Option<usize>) {
        self.unsent = self.unsent.saturating_sub(1);
        self.uncount_body(bytes);
    }

    fn count_body(&mut self, bytes: Option<usize>) {
        self.bodies += usize::from(bytes.is_some());
        self.bodies_bytes += bytes.unwrap_or(0);
    }

    fn uncount_body(&mut self, bytes: Option<usize>) {
        self.bodies = self.bodies.saturating_sub(usize::from(bytes.is_some()));
        self.bodies_bytes = self.bodies_bytes.saturating_sub(bytes.unwrap_or(0));
    }
}

impl Window {
    pub(crate) fn is_keyed(&self) -> bool {
        self.keyed.is_some()
    }

    /// Checks the queues by key and the counts of unsent events.
    pub(super) fn check_keys(&self, at: CursorRef) {
        let mut expected = KeyQueues::default();
        for (offset, open) in self.iter() {
            if let Some(key) = open.key() {
                expected.queues.entry(key).or_default().insert(offset);
            }
            if let OpenState::Awaiting { member } = open.state() {
                expected.awaiting.entry(member).or_default().insert(offset);
            }
            if !open.was_sent() {
                expected.count_unsent(open.kept_bytes());
            }
        }
        let parked = self.iter().filter(|(_, open)| open.state() == OpenState::Parked);
        for (offset, open) in parked {
            let queue = open.key().and_then(|key| expected.queues.get(&key));
            let first = queue.and_then(BTreeSet::first);
            assert!(
                first.is_some_and(|first| *first < offset),
                "offset {offset} of {at:?} waits for nothing"
            );
        }
        match &self.keyed {
            Some(keyed) => assert_eq!(*keyed, expected, "queues by key of {at:?}"),
            None => assert!(expected.awaiting.is_empty(), "{at:?} waits for a member of a key"),
        }
    }

    /// How many events were never sent, because their key or its member is busy.
    pub(crate) fn unsent(&self) -> usize {
        self.keyed.as_ref().map_or(0, |keyed| keyed.unsent)
    }

    /// Whether an event of this key is unfinished.
    pub(crate) fn has_unfinished(&self, key: KeyHash) -> bool {
        self.keyed.as_ref().is_some_and(|keyed| keyed.is_busy(key))
    }

    /// The members without room that events wait for.
    pub(crate) fn awaited(&self) -> Vec<ConnId> {
        self.keyed.iter().flat_map(|keyed| keyed.awaiting.keys().copied()).collect()
    }

    /// Starts or stops keeping order per key. Events in flight stay in flight.
    pub(crate) fn keep_order_per_key(&mut self, keep: bool, hash: impl Fn(&str) -> KeyHash) {
        if self.keyed.is_some() == keep {
            return;
        }
        self.keyed = keep.then(KeyQueues::default);
        let mut freed = Vec::new();
        for (offset, open) in &mut self.open {
            if let Some(keyed) = &mut self.keyed {
                // If the body was dropped from memory, its key was noted then.
                open.learn_key(&hash);
                if let Some(key) = open.key() {
                    keyed.queues.entry(key).or_default().insert(*offset);
                }
                if !open.was_sent() {
                    keyed.count_unsent(open.kept_bytes());
                }
            } else if matches!(open.state(), OpenState::Parked | OpenState::Awaiting { .. }) {
                open.set_state(OpenState::Ready);
                freed.push(*offset);
            }
        }
        self.ready.extend(freed);
    }

    /// Takes a fresh event into `open`: in this state, or parked behind an unfinished one of its key.
    pub(in crate::groups::cursor) fn insert(
        &mut self,
        fetched: Fetched,
        state: OpenState,
        hash: impl Fn(&str) -> KeyHash,
    ) {
        let offset = fetched.offset();
        let key = fetched.event.body.key.as_deref().filter(|_| self.keyed.is_some()).map(hash);
        let mut open = Open::from_fetched(fetched, state, key);
        if let Some(keyed) = &mut self.keyed {
            keyed.count_unsent(open.kept_bytes());
            if let Some(key) = key {
                if state == OpenState::Ready && keyed.is_busy(key) {
                    open.set_state(OpenState::Parked);
                }
                keyed.queues.entry(key).or_default().insert(offset);
            }
        }
        match open.state() {
            OpenState::Ready => drop(self.ready.insert(offset)),
            OpenState::ToDeadLetter => self.to_dead_letter.push_back(offset),
            _ => {}
        }
        self.open.insert(offset, open);
    }

    /// Whether no lower event of the same key is unfinished, and no other one in flight.
    pub(crate) fn may_send_of_key(&self, offset: u64) -> bool {
        let Some(open) = self.open.get(&offset) else { return false };
        let Some((keyed, key)) = self.keyed.as_ref().zip(open.key()) else { return true };
        let Some(queue) = keyed.queues.get(&key) else { return true };
        // A higher event of the key is in flight only if this one counted as done meanwhile, or was sent before the
        // group became sticky.
        let in_flight = |other: &u64| self.open.get(other).is_some_and(|open| open.state().is_leased());
        queue.first().is_none_or(|first| offset <= *first)
            && !(open.came_back() && queue.iter().any(in_flight))
    }

    /// Whether an event of this key is in flight.
    pub(crate) fn has_in_flight(&self, key: KeyHash) -> bool {
        let queue = self.keyed.as_ref().and_then(|keyed| keyed.queues.get(&key));
        let leased = |offset| self.open.get(offset).is_some_and(|open| open.state().is_leased());
        queue.is_some_and(|queue| queue.iter().any(leased))
    }

    /// Sets a ready event aside until the member of its key has room.
    pub(crate) fn await_member(&mut self, offset: u64, member: ConnId) {
        let (Some(keyed), Some(open)) = (&mut self.keyed, self.open.get_mut(&offset)) else { return };
        open.set_state(OpenState::Awaiting { member });
        self.ready.remove(&offset);
        keyed.awaiting.entry(member).or_default().insert(offset);
    }

    /// Makes the lowest events that await a member ready again: at most `events_max`.
    pub(crate) fn recall(&mut self, member: ConnId, events_max: usize) {
        let Some(awaiting) = self.keyed.as_mut().and_then(|keyed| keyed.awaiting.get_mut(&member)) else {
            return;
        };
        for _ in 0..events_max {
            let Some(offset) = awaiting.pop_first() else { break };
            if let Some(open) = self.open.get_mut(&offset) {
                open.set_state(OpenState::Ready);
                self.ready.insert(offset);
            }
        }
        self.forget_empty_queue(member);
    }

    fn forget_empty_queue(&mut self, member: ConnId) {
        if let Some(keyed) = &mut self.keyed
            && keyed.awaiting.get(&member).is_some_and(BTreeSet::is_empty)
        {
            keyed.awaiting.remove(&member);
        }
    }

    /// Drops the body of a waiting event from memory, if more than `bodies_max` bodies or `bytes_max` bytes are kept.
    pub(crate) fn let_go_of_body(&mut self, offset: u64, bodies_max: usize, bytes_max: usize) {
        let (Some(keyed), Some(open)) = (&mut self.keyed, self.open.get_mut(&offset)) else { return };
        let waits = matches!(open.state(), OpenState::Ready | OpenState::Parked | OpenState::Awaiting { .. });
        let too_many = keyed.bodies > bodies_max || keyed.bodies_bytes > bytes_max;
        if waits && too_many && !open.was_sent() {
            keyed.uncount_body(open.kept_bytes());
            open.drop_body();
        }
    }

    /// Takes the body of an event that was dropped from memory and read again.
    pub(crate) fn put_body(&mut self, offset: u64, event: Arc<Event>, hash: impl Fn(&str) -> KeyHash) {
        let Some(open) = self.open.get_mut(&offset) else { return };
        let counts = !open.was_sent() && open.event().is_none();
        let bytes = event.body.bytes();
        open.put_body(event);
        if let Some(keyed) = &mut self.keyed {
            // The key is not known of an event that was acked by a higher offset before the group became sticky, and
            // then refused.
            open.learn_key(hash);
            if let Some(key) = open.key() {
                keyed.queues.entry(key).or_default().insert(offset);
            }
            if counts {
                keyed.count_body(Some(bytes));
            }
        }
    }

    /// Lets the next event of the key be sent, because this event has left `open`.
    pub(super) fn free_key(&mut self, offset: u64, open: &Open) {
        if let Some(keyed) = self.keyed.as_mut().filter(|_| !open.was_sent()) {
            keyed.count_sent(open.kept_bytes());
        }
        if let (OpenState::Awaiting { member }, Some(keyed)) = (open.state(), &mut self.keyed) {
            keyed.awaiting.entry(member).or_default().remove(&offset);
            self.forget_empty_queue(member);
        }
        let Some((keyed, key)) = self.keyed.as_mut().zip(open.key()) else { return };
        let Some(queue) = keyed.queues.get_mut(&key) else { return };
        queue.remove(&offset);
        let next = queue.first().copied();
        if queue.is_empty() {
            keyed.queues.remove(&key);
        }
        let Some(next) = next else { return };
        if let Some(open) = self.open.get_mut(&next).filter(|open| open.state() == OpenState::Parked) {
            open.set_state(OpenState::Ready);
            self.ready.insert(next);
        }
    }

    /// Queues an event under its key again, because it comes back to `open`: its dead letter could not be written, or
    /// it was refused after a cumulative ack had completed it.
    pub(super) fn requeue_key(&mut self, offset: u64, key: Option<KeyHash>) {
        if let Some((keyed, key)) = self.keyed.as_mut().zip(key) {
            keyed.queues.entry(key).or_default().insert(offset);
        }
    }
}
