//! Order per key: of the events of one key only the lowest that is not done may be sent. Kept while the group is sticky.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_model::Event;

use super::{Cursor, Fetched, Open, OpenState};
use crate::input::ConnId;
use crate::sticky::KeyHash;

#[derive(Debug, Default)]
pub(crate) struct KeyQueues {
    /// Offsets in `open`, by key.
    queues: BTreeMap<KeyHash, BTreeSet<u64>>,
    /// Ready events of `open` whose key's member has no room, by member, so that nobody looks at them before it has.
    awaiting: BTreeMap<ConnId, BTreeSet<u64>>,
    /// Events in `open` that were never sent, because their key or its member is busy.
    pub(crate) unsent: usize,
    /// Of those, the ones whose bodies are in memory, and their bytes.
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
    /// Starts or stops keeping order per key. What is in flight by then stays in flight.
    pub(crate) fn keep_order_per_key(&mut self, keep: bool, hash: impl Fn(&str) -> KeyHash) {
        if self.keyed.is_some() == keep {
            return;
        }
        self.keyed = keep.then(KeyQueues::default);
        let mut freed = Vec::new();
        for (offset, open) in &mut self.open {
            if let Some(keyed) = &mut self.keyed {
                // The key of an event whose body was let go of was noted then.
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
        // A higher one may be in flight only if this one counted as done meanwhile, or was sent before the group was
        // sticky.
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

    /// Makes the lowest events that await a member ready again: at most so many.
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

    /// Lets go of the body of an event that has to wait, if more bodies than that are in memory.
    pub(crate) fn let_go_of_body(&mut self, offset: u64, bodies_max: usize, bytes_max: usize) {
        let (Some(keyed), Some(open)) = (&mut self.keyed, self.open.get_mut(&offset)) else { return };
        let waits = matches!(open.state, OpenState::Ready | OpenState::Parked | OpenState::Awaiting { .. });
        let crowded = keyed.bodies > bodies_max || keyed.bodies_bytes > bytes_max;
        if waits && crowded && open.last.is_none() {
            keyed.uncount_body(open.kept_bytes());
            open.event = None;
        }
    }

    /// The body of an event that was let go of has been read again.
    pub(crate) fn take_again(&mut self, offset: u64, event: Arc<Event>, hash: impl Fn(&str) -> KeyHash) {
        let Some(open) = self.open.get_mut(&offset) else { return };
        if let Some(keyed) = &mut self.keyed {
            // Not known of an event that was acked by a higher offset before the group was sticky, and then refused.
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

    /// An event goes to a member for the first time; `body_bytes` if its body was in memory.
    pub(super) fn count_sent(&mut self, body_bytes: Option<usize>) {
        if let Some(keyed) = &mut self.keyed {
            keyed.unsent = keyed.unsent.saturating_sub(1);
            keyed.uncount_body(body_bytes);
        }
    }

    /// The event is not in `open` any more: the next one of its key may be sent.
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

    /// An event that had left `open` comes back: its dead letter could not be written, or it was refused after an ack that
    /// meant it too.
    pub(super) fn requeue_key(&mut self, offset: u64, key: Option<KeyHash>) {
        if let Some((keyed, key)) = self.keyed.as_mut().zip(key) {
            keyed.queues.entry(key).or_default().insert(offset);
        }
    }
}
