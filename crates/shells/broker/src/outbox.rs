//! The items that wait for one connection (`Outbox`): added by the owner, taken by the connection's task.
//!
//! Items are typed; the connection's task serialises them, so the owner need not. Bytes count until they are written to
//! the socket, not until they are taken; otherwise a slow socket would be hidden by its own buffer.
//!
//! Items that are added while the connection's task runs a turn inline do not wake that task, which is awake. The task
//! must look at the outbox afterwards, or be woken after all: [`Outbox::watch`] wakes it if nothing has looked by the
//! end of its poll, and a task without `watch` is woken when its turn is over.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;

use millrace_bus::{BusError, Reply};
use millrace_model::{Event, Group};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::metrics::Metrics;

#[derive(Clone, Debug)]
pub enum Item {
    /// The answer to the request that the connection gave this number.
    Reply {
        request: u64,
        reply: Reply,
    },
    Delivery {
        group: Group,
        event: Arc<Event>,
        attempts: u32,
    },
    /// An error that answers no request of the connection.
    Notice {
        error: BusError,
        group: Option<Group>,
    },
}

impl Item {
    /// An upper estimate of the size of the resulting frame.
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

/// The result of taking items from an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Pass `bytes` to [`crate::BusConnection::written`] once they are on the socket.
    Items { bytes: usize },
    /// The outbox is closed and nothing more will come: the reader was too slow or the broker has ended.
    Closed,
}

/// The state of the outbox after the owner has added items.
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
    state: Mutex<OutboxState>,
    filled: Notify,
    relieved: Notify,
    /// The connection's task is being polled by [`Outbox::watch`], which looks for unseen items afterwards. Written and
    /// read by that task alone.
    watched: AtomicBool,
    /// Items were added without waking the connection's task, and it has not looked since. Written under the lock; the
    /// task may read it without, because it has held the lock after everybody who could set it (`ConsumerAwake`).
    unseen: AtomicBool,
    soft_bytes: usize,
    hard_bytes: usize,
    /// Counts the bytes of all connections together.
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct OutboxState {
    items: VecDeque<Item>,
    bytes: usize,
    congested: bool,
    closed: bool,
    /// The connection's task runs a turn inline: it need not be woken.
    consumer_awake: bool,
}

impl Outbox {
    pub(crate) fn new(soft_bytes: usize, hard_bytes: usize, metrics: Arc<Metrics>) -> Outbox {
        Outbox {
            state: Mutex::default(),
            filled: Notify::new(),
            relieved: Notify::new(),
            watched: AtomicBool::new(false),
            unseen: AtomicBool::new(false),
            soft_bytes,
            hard_bytes,
            metrics,
        }
    }

    /// Adds the items of one turn and wakes the connection once. The deliveries of a turn may pass the hard bound: the
    /// engine emitted them before it could be told, and their events are shared with its own buffers.
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
        let consumer_awake = state.consumer_awake;
        if consumer_awake {
            self.unseen.store(true, Relaxed);
        }
        drop(state);
        if !consumer_awake {
            self.filled.notify_one();
        }
        pressure
    }

    /// Polls the connection's task. Items that arrive while that task runs a turn inline wake it only if it has not
    /// looked at the outbox by the end of the poll: in whichever order the task polls its parts, it misses no item, and
    /// if it receives after it has sent, no wake-up is spent.
    pub(crate) async fn watch<F: Future>(&self, task: F) -> F::Output {
        let mut task = pin!(task);
        poll_fn(|cx| {
            let watched = Watched::begin(self);
            let polled = task.as_mut().poll(cx);
            drop(watched);
            polled
        })
        .await
    }

    /// Wakes the connection's task if items were added silently and it has not looked since.
    fn wake_for_unseen(&self) {
        if self.unseen.load(Relaxed) {
            self.unseen.store(false, Relaxed);
            self.filled.notify_one();
        }
    }

    /// Until the guard is dropped, adding items does not wake the connection's task.
    pub(crate) fn mark_consumer_awake(&self) -> ConsumerAwake<'_> {
        let mut state = self.lock();
        state.consumer_awake = true;
        ConsumerAwake { outbox: self, is_empty: state.items.is_empty() }
    }

    pub(crate) fn congested(&self) -> bool {
        self.lock().congested
    }

    pub(crate) fn unread_bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Drops the queued items and tells the connection's task that nothing more will come.
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

    pub(crate) async fn receive(
        &self,
        items: &mut Vec<Item>,
        items_max: usize,
        bytes_max: usize,
    ) -> Received {
        loop {
            let mut filled = pin!(self.filled.notified());
            // Looks at every poll: items added while the task runs a turn inline do not wake it.
            let check = poll_fn(|cx| match self.try_receive(items, items_max, bytes_max) {
                Some(taken) => Poll::Ready(Some(taken)),
                None => filled.as_mut().poll(cx).map(|()| None),
            });
            if let Some(taken) = check.await {
                return taken;
            }
        }
    }

    pub(crate) fn try_receive(
        &self,
        items: &mut Vec<Item>,
        items_max: usize,
        bytes_max: usize,
    ) -> Option<Received> {
        let mut state = self.lock();
        self.unseen.store(false, Relaxed);
        if state.closed {
            return Some(Received::Closed);
        }
        let mut bytes = 0;
        while items.len() < items_max && bytes < bytes_max {
            let Some(item) = state.items.pop_front() else { break };
            bytes += item.bytes();
            items.push(item);
        }
        (bytes > 0).then_some(Received::Items { bytes })
    }

    /// Returns true if the connection had been held back and may go on: the owner must be told.
    pub(crate) fn written(&self, bytes: usize) -> bool {
        let mut state = self.lock();
        // A closed outbox counts no bytes, whatever is still written.
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
            // Registered before the check, or a relief between the two would be missed.
            let relieved = self.relieved.notified();
            if !self.congested() {
                return;
            }
            relieved.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock()
    }
}

/// While this guard lives, the connection's task runs a turn inline.
#[derive(Debug)]
pub(crate) struct ConsumerAwake<'a> {
    outbox: &'a Outbox,
    /// The outbox was empty when the guard was made.
    pub(crate) is_empty: bool,
}

impl Drop for ConsumerAwake<'_> {
    fn drop(&mut self) {
        self.outbox.lock().consumer_awake = false;
        // Otherwise the end of the poll looks.
        if !self.outbox.watched.load(Relaxed) {
            self.outbox.wake_for_unseen();
        }
    }
}

/// While this guard lives, the connection's task is being polled by [`Outbox::watch`].
struct Watched<'a>(&'a Outbox);

impl Watched<'_> {
    fn begin(outbox: &Outbox) -> Watched<'_> {
        outbox.watched.store(true, Relaxed);
        Watched(outbox)
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.watched.store(false, Relaxed);
        self.0.wake_for_unseen();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Wake, Waker};

    use super::*;

    const ITEM: usize = 512;

    /// Counts how often the connection's task is woken.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// A part of a connection's task, polled once in each poll of the task.
    #[derive(Clone, Copy, PartialEq)]
    enum Part {
        Send,
        Receive,
    }

    /// A task of two parts that are polled in the given order, the first time without anything to send. Returns how
    /// often the task was woken by its own turn, and how many items it has received when nobody wakes it any more.
    fn send_in_a_poll(order: [Part; 2], is_watched: bool) -> (usize, usize) {
        let outbox = Outbox::new(1 << 20, 1 << 20, Arc::default());
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut cx = Context::from_waker(&waker);
        let (received, sends) = (AtomicUsize::new(0), AtomicBool::new(false));
        let mut receiving = Box::pin(async {
            loop {
                let mut taken = Vec::new();
                outbox.receive(&mut taken, 64, 1 << 20).await;
                received.fetch_add(taken.len(), Relaxed);
            }
        });
        let parts = poll_fn(|cx| {
            for part in order {
                if part == Part::Receive {
                    let _: Poll<()> = receiving.as_mut().poll(cx);
                } else if sends.swap(false, Relaxed) {
                    // The engine answers on the spot.
                    let _awake = outbox.mark_consumer_awake();
                    outbox.fill(&mut items(1));
                }
            }
            Poll::<()>::Pending
        });
        let mut task: Pin<Box<dyn Future<Output = ()>>> =
            if is_watched { Box::pin(outbox.watch(parts)) } else { Box::pin(parts) };
        let _ = task.as_mut().poll(&mut cx);
        assert_eq!(wakes.0.load(Relaxed), 0);
        sends.store(true, Relaxed);
        let _ = task.as_mut().poll(&mut cx);
        let woken = wakes.0.load(Relaxed);
        let mut polled = 0;
        while wakes.0.load(Relaxed) > polled {
            polled += 1;
            let _ = task.as_mut().poll(&mut cx);
        }
        (woken, received.load(Relaxed))
    }

    #[test]
    fn a_watched_task_that_receives_after_it_has_sent_is_not_woken() {
        assert_eq!(send_in_a_poll([Part::Send, Part::Receive], true), (0, 1));
    }

    #[test]
    fn a_watched_task_that_receives_before_it_sends_is_woken_once() {
        assert_eq!(send_in_a_poll([Part::Receive, Part::Send], true), (1, 1));
    }

    #[test]
    fn a_task_that_nobody_watches_is_woken_whatever_its_order() {
        assert_eq!(send_in_a_poll([Part::Send, Part::Receive], false), (1, 1));
        assert_eq!(send_in_a_poll([Part::Receive, Part::Send], false), (1, 1));
    }

    #[test]
    fn items_of_another_thread_s_turn_wake_a_task_between_its_polls() {
        let outbox = Outbox::new(1 << 20, 1 << 20, Arc::default());
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut cx = Context::from_waker(&waker);
        let mut taken = Vec::new();
        let mut task = Box::pin(outbox.watch(outbox.receive(&mut taken, 64, 1 << 20)));
        assert!(task.as_mut().poll(&mut cx).is_pending());
        outbox.fill(&mut items(2));
        assert_eq!(wakes.0.load(Relaxed), 1);
        assert!(task.as_mut().poll(&mut cx).is_ready());
    }

    #[test]
    fn a_task_whose_outbox_is_closed_during_its_turn_learns_it() {
        let outbox = Outbox::new(1 << 20, 1 << 20, Arc::default());
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut cx = Context::from_waker(&waker);
        let mut taken = Vec::new();
        let mut receiving = Box::pin(outbox.receive(&mut taken, 64, 1 << 20));
        assert!(receiving.as_mut().poll(&mut cx).is_pending());
        let awake = outbox.mark_consumer_awake();
        outbox.close();
        drop(awake);
        assert_eq!(wakes.0.load(Relaxed), 1);
        assert_eq!(receiving.as_mut().poll(&mut cx), Poll::Ready(Received::Closed));
    }

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
        assert_eq!(outbox.try_receive(&mut taken, 4, usize::MAX), Some(Received::Items { bytes: 4 * ITEM }));
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
        assert_eq!(outbox.try_receive(&mut Vec::new(), 1, 1), Some(Received::Closed));
    }
}
