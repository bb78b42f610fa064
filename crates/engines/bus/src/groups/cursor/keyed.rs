//! Order per key: of the events of one key only the lowest that is not done may be sent. Kept while the group is
//! sticky.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_model::Event;

use super::{Cursor, Fetched, Open, OpenState};
use crate::groups::sticky::KeyHash;
use crate::interface::input::ConnId;

#[derive(Debug, Default)]
pub(crate) struct KeyQueues {
    /// Offsets in `open`, by key.
    queues: BTreeMap<KeyHash, BTreeSet<u64>>,
    /// Ready events of `open` whose key's member has no room, by member, so that they are not looked at before the
    /// member has room.
    awaiting: BTreeMap<ConnId, BTreeSet<u64>>,
    /// Events in `open` that were never sent, because their key or its member is busy.
    pub(crate) unsent: usize,
    /// Of those, how many have their bodies are in memory, and their bytes.
    bodies: usize,
    bodies_bytes: usize,
}

impl KeyQueues {
    pub(crate) fn is_busy(&self, key: KeyHash) -> bool {
        self.queues.contains_key(&key)
    }

    pub(crate) fn awaited(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.awaiting.keys().copied()
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

impl Cursor {
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
                let key = open.event.as_ref().and_then(|event| event.body.key.as_deref());
                open.key = open.key.or_else(|| key.map(&hash));
                if let Some(key) = open.key {
                    keyed.queues.entry(key).or_default().insert(*offset);
                }
                if open.last.is_none() {
                    keyed.unsent += 1;
                    keyed.count_body(open.kept_bytes());
                }
            } else if matches!(open.state, OpenState::Parked | OpenState::Awaiting { .. }) {
                open.state = OpenState::Ready;
                freed.push(*offset);
            }
        }
        self.ready.extend(freed);
    }

    /// Takes a fresh event into `open`: ready to be sent, or parked behind an unfinished one of its key.
    pub(crate) fn open_keyed(&mut self, fetched: Fetched, state: OpenState, key: Option<KeyHash>) {
        let offset = fetched.event.offset.0;
        let mut open = Open { key, ..Open::from_fetched(fetched, state) };
        if let Some(keyed) = &mut self.keyed {
            keyed.unsent += 1;
            keyed.count_body(open.kept_bytes());
            if let Some(key) = key {
                if state == OpenState::Ready && keyed.is_busy(key) {
                    open.state = OpenState::Parked;
                }
                keyed.queues.entry(key).or_default().insert(offset);
            }
        }
        if open.state == OpenState::Ready {
            self.ready.insert(offset);
        }
        self.open.insert(offset, open);
    }

    /// Whether no lower event of the same key is unfinished, and no other one in flight.
    pub(crate) fn may_send_of_key(&self, offset: u64) -> bool {
        let Some(open) = self.open.get(&offset) else { return false };
        let Some((keyed, key)) = self.keyed.as_ref().zip(open.key) else { return true };
        let Some(queue) = keyed.queues.get(&key) else { return true };
        // A higher event of the key is in flight only if this one counted as done meanwhile, or was sent before the
        // group became sticky.
        let came_back = open.last.is_some() || open.attempts > 0;
        let in_flight = |other: &u64| {
            self.open.get(other).is_some_and(|open| matches!(open.state, OpenState::Leased { .. }))
        };
        queue.first().is_none_or(|first| offset <= *first) && !(came_back && queue.iter().any(in_flight))
    }

    /// Whether an event of this key is in flight.
    pub(crate) fn has_in_flight(&self, key: KeyHash) -> bool {
        let queue = self.keyed.as_ref().and_then(|keyed| keyed.queues.get(&key));
        let leased =
            |offset| self.open.get(offset).is_some_and(|open| matches!(open.state, OpenState::Leased { .. }));
        queue.is_some_and(|queue| queue.iter().any(leased))
    }

    /// Sets a ready event aside until the member of its key has room.
    pub(crate) fn await_member(&mut self, offset: u64, member: ConnId) {
        let (Some(keyed), Some(open)) = (&mut self.keyed, self.open.get_mut(&offset)) else { return };
        open.state = OpenState::Awaiting { member };
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
                open.state = OpenState::Ready;
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
        let waits = matches!(open.state, OpenState::Ready | OpenState::Parked | OpenState::Awaiting { .. });
        let crowded = keyed.bodies > bodies_max || keyed.bodies_bytes > bytes_max;
        if waits && crowded && open.last.is_none() {
            keyed.uncount_body(open.kept_bytes());
            open.event = None;
        }
    }

    /// Takes the body of an event that was dropped from memory and read again.
    pub(crate) fn take_again(&mut self, offset: u64, event: Arc<Event>, hash: impl Fn(&str) -> KeyHash) {
        let Some(open) = self.open.get_mut(&offset) else { return };
        if let Some(keyed) = &mut self.keyed {
            // The key is not known of an event that was acked by a higher offset before the group became sticky, and
            // then refused.
            open.key = open.key.or_else(|| event.body.key.as_deref().map(hash));
            if let Some(key) = open.key {
                keyed.queues.entry(key).or_default().insert(offset);
            }
            if open.last.is_none() && open.event.is_none() {
                keyed.count_body(Some(event.body.bytes()));
            }
        }
        open.event = Some(event);
    }

    /// Stops counting an event as unsent: it goes to a member for the first time, or leaves `open`. `body_bytes` is
    /// given if its body was in memory.
    pub(super) fn count_sent(&mut self, body_bytes: Option<usize>) {
        if let Some(keyed) = &mut self.keyed {
            keyed.unsent = keyed.unsent.saturating_sub(1);
            keyed.uncount_body(body_bytes);
        }
    }

    /// Lets the next event of the key be sent, because this event has left `open`.
    pub(crate) fn free_key(&mut self, offset: u64, open: &Open) {
        if open.last.is_none() {
            self.count_sent(open.kept_bytes());
        }
        if let (OpenState::Awaiting { member }, Some(keyed)) = (open.state, &mut self.keyed) {
            keyed.awaiting.entry(member).or_default().remove(&offset);
            self.forget_empty_queue(member);
        }
        let Some((keyed, key)) = self.keyed.as_mut().zip(open.key) else { return };
        let Some(queue) = keyed.queues.get_mut(&key) else { return };
        queue.remove(&offset);
        let next = queue.first().copied();
        if queue.is_empty() {
            keyed.queues.remove(&key);
        }
        let Some(next) = next else { return };
        if let Some(open) = self.open.get_mut(&next).filter(|open| open.state == OpenState::Parked) {
            open.state = OpenState::Ready;
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
