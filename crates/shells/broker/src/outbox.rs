//! What waits for one connection: filled by the owner, emptied by the connection's task.
//!
//! Items are typed; the connection's task serialises them, so the owner does not. Bytes count until they are written
//! to the socket, not until they are taken, or a slow socket would hide behind its own buffer.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use millrace_bus::{BusError, Reply};
use millrace_model::{Event, Group};
use tokio::sync::Notify;

use crate::metrics::Metrics;

#[derive(Clone, Debug)]
pub enum Item {
    /// The answer to the request the connection gave this number.
    Reply {
        request: u64,
        reply: Reply,
    },
    Delivery {
        group: Group,
        event: Arc<Event>,
        attempts: u32,
    },
    /// Something the connection did not ask about.
    Notice {
        error: BusError,
        group: Option<Group>,
    },
}

impl Item {
    /// An upper estimate of the frame it becomes.
    fn bytes(&self) -> usize {
        const FRAME: usize = 512;
        match self {
            Item::Delivery { event, .. } => FRAME + event.body.bytes(),
            Item::Reply { reply: Reply::PublishedBatch { offsets, .. }, .. } => FRAME + 24 * offsets.len(),
            Item::Reply { reply: Reply::Subscribed { partitions, .. }, .. } => FRAME + 48 * partitions.len(),
            Item::Reply { .. } | Item::Notice { .. } => FRAME,
        }
    }
}

/// What a connection's task got hold of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Bytes to give back to [`crate::Link::written`] once they are on the socket.
    Items { bytes: usize },
    /// The outbox is closed, nothing more will come: the reader was too slow or the runtime has ended.
    Closed,
}

/// What the owner learns when it puts something in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    Fine,
    /// The soft bound was just passed.
    Rising,
    /// The hard bound is passed although the engine had been told to hold back.
    Overrun,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    filled: Notify,
    relieved: Notify,
    soft_bytes: usize,
    hard_bytes: usize,
    /// For the sum over all connections.
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Item>,
    bytes: usize,
    congested: bool,
    closed: bool,
    /// The connection's task is awake and looks when it is done.
    attended: bool,
}

impl Outbox {
    pub(crate) fn new(soft_bytes: usize, hard_bytes: usize, metrics: Arc<Metrics>) -> Outbox {
        Outbox {
            state: Mutex::default(),
            filled: Notify::new(),
            relieved: Notify::new(),
            soft_bytes,
            hard_bytes,
            metrics,
        }
    }

    /// Moves the items of one owner turn in and wakes the connection once. A turn's deliveries may pass the hard
    /// bound: the engine emitted them before it could be told, and they are shared with its own buffers.
    pub(crate) fn fill(&self, items: &mut Vec<Item>) -> Pressure {
        let added: usize = items.iter().map(Item::bytes).sum();
        let mut state = self.lock();
        if state.closed {
            items.clear();
            return Pressure::Fine;
        }
        state.items.extend(items.drain(..));
        state.bytes += added;
        self.metrics.outbound_bytes.fetch_add(added as u64, Relaxed);
        let pressure = match state.congested {
            true if state.bytes > self.hard_bytes => Pressure::Overrun,
            false if state.bytes > self.soft_bytes => Pressure::Rising,
            _ => Pressure::Fine,
        };
        state.congested |= pressure == Pressure::Rising;
        let attended = state.attended;
        drop(state);
        if !attended {
            self.filled.notify_one();
        }
        pressure
    }

    /// Nobody needs to be woken for what is put in meanwhile.
    pub(crate) fn attend(&self) -> Attended<'_> {
        let mut state = self.lock();
        state.attended = true;
        Attended { outbox: self, is_empty: state.items.is_empty() }
    }

    pub(crate) fn congested(&self) -> bool {
        self.lock().congested
    }

    /// Drops what is queued and tells the connection's task that nothing more will come.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.congested = false;
        self.metrics.outbound_bytes.fetch_sub(std::mem::take(&mut state.bytes) as u64, Relaxed);
        let dropped = std::mem::take(&mut state.items);
        drop(state);
        drop(dropped);
        self.filled.notify_one();
        self.relieved.notify_waiters();
    }

    pub(crate) async fn take(&self, items: &mut Vec<Item>, items_max: usize, bytes_max: usize) -> Taken {
        loop {
            let mut filled = pin!(self.filled.notified());
            // It looks at every poll: who puts something in while the task is awake does not wake it.
            let look = poll_fn(|cx| match self.try_take(items, items_max, bytes_max) {
                Some(taken) => Poll::Ready(Some(taken)),
                None => filled.as_mut().poll(cx).map(|()| None),
            });
            if let Some(taken) = look.await {
                return taken;
            }
        }
    }

    pub(crate) fn try_take(
        &self,
        items: &mut Vec<Item>,
        items_max: usize,
        bytes_max: usize,
    ) -> Option<Taken> {
        let mut state = self.lock();
        if state.closed {
            return Some(Taken::Closed);
        }
        let mut bytes = 0;
        while items.len() < items_max && bytes < bytes_max {
            let Some(item) = state.items.pop_front() else { break };
            bytes += item.bytes();
            items.push(item);
        }
        (bytes > 0).then_some(Taken::Items { bytes })
    }

    /// True when the connection had been held back and may now go on: the owner must be told.
    pub(crate) fn written(&self, bytes: usize) -> bool {
        let mut state = self.lock();
        // Once closed it holds nothing, whatever is still written.
        let gone = bytes.min(state.bytes);
        state.bytes -= gone;
        self.metrics.outbound_bytes.fetch_sub(gone as u64, Relaxed);
        let relieved = state.congested && state.bytes <= self.soft_bytes / 2;
        if relieved {
            state.congested = false;
            self.relieved.notify_waiters();
        }
        relieved
    }

    /// Waits while the outbox is above its soft bound.
    pub(crate) async fn relieved(&self) {
        loop {
            // Registered before the look, or a relief between the two would be missed.
            let relieved = self.relieved.notified();
            if !self.congested() {
                return;
            }
            relieved.await;
        }
    }

    /// Every section below leaves the state consistent, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Until it is dropped, the connection's task is awake.
#[derive(Debug)]
pub(crate) struct Attended<'a> {
    outbox: &'a Outbox,
    /// Nothing waited to be written when it began.
    pub(crate) is_empty: bool,
}

impl Drop for Attended<'_> {
    fn drop(&mut self) {
        self.outbox.lock().attended = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: usize = 512;

    fn items(count: usize) -> Vec<Item> {
        (0..count as u64).map(|request| Item::Reply { request, reply: Reply::Acked }).collect()
    }

    #[test]
    fn pressure_rises_once_and_is_relieved_at_half_of_what_was_written() {
        let outbox = Outbox::new(4 * ITEM, 8 * ITEM, Arc::default());
        assert_eq!(outbox.fill(&mut items(4)), Pressure::Fine);
        assert_eq!(outbox.fill(&mut items(1)), Pressure::Rising);
        assert_eq!(outbox.fill(&mut items(1)), Pressure::Fine);
        let mut taken = Vec::new();
        assert_eq!(outbox.try_take(&mut taken, 4, usize::MAX), Some(Taken::Items { bytes: 4 * ITEM }));
        assert!(outbox.congested(), "taken is not written");
        assert!(!outbox.written(3 * ITEM));
        assert!(outbox.written(ITEM));
        assert!(!outbox.congested());
    }

    #[test]
    fn only_a_connection_that_was_held_back_overruns() {
        let outbox = Outbox::new(4 * ITEM, 8 * ITEM, Arc::default());
        assert_eq!(outbox.fill(&mut items(100)), Pressure::Rising);
        assert_eq!(outbox.fill(&mut items(1)), Pressure::Overrun);
        assert_eq!(outbox.metrics.outbound_bytes.load(Relaxed), 101 * ITEM as u64);
        outbox.close();
        outbox.written(ITEM);
        assert_eq!(outbox.metrics.outbound_bytes.load(Relaxed), 0);
        assert_eq!(outbox.fill(&mut items(1)), Pressure::Fine);
        assert_eq!(outbox.try_take(&mut Vec::new(), 1, 1), Some(Taken::Closed));
    }
}
