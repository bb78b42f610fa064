//! The queue of events from the host's thread to the thread that writes them (`report.rs`).
//!
//! The queue is bounded by events and by bytes. While it is full, because nobody reads the trace, the host and all its
//! runs wait: no event is lost, and a program cannot fill the memory with events.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_wasm::TrapReport;
use millrace_wasm::replay::ReplayEnd;
use millrace_wasm::trace::TraceEvent;
use parking_lot::{Condvar, Mutex, MutexGuard};

/// The most events that wait to be written; the host waits before it adds another.
const QUEUE_EVENTS_MAX: usize = 1_024;
/// The most bytes of the events that wait to be written. A larger event waits until the queue is empty.
const QUEUE_BYTES_MAX: usize = 8 << 20;

/// A message to the report. Messages keep their order.
#[derive(Debug)]
pub(super) enum ReportMessage {
    /// An event, with the report of the trap if a run ended by one.
    Event { event: TraceEvent, trap: Option<TrapReport> },
    /// A replay has ended.
    ReplayEnded(ReplayEnd),
}

impl ReportMessage {
    fn size_bytes(&self) -> usize {
        match self {
            ReportMessage::Event { event, .. } => event.size_bytes(),
            ReportMessage::ReplayEnded(_) => 0,
        }
    }
}

#[derive(Default)]
struct EventQueue {
    state: Mutex<EventQueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct EventQueueState {
    waiting: VecDeque<ReportMessage>,
    bytes: usize,
    /// The sender or the receiver was dropped.
    is_closed: bool,
}

/// The sending end, for the host's thread.
pub(super) struct EventSender(Arc<EventQueue>);

/// The receiving end, for the report's thread.
pub(super) struct EventReceiver(Arc<EventQueue>);

pub(super) fn event_queue() -> (EventSender, EventReceiver) {
    let queue = Arc::new(EventQueue::default());
    (EventSender(queue.clone()), EventReceiver(queue))
}

impl EventSender {
    /// Sends a message, waiting until there is room. Drops the message if the report has ended.
    pub(super) fn send(&self, told: ReportMessage) {
        let bytes = told.size_bytes();
        let full = |state: &mut EventQueueState| {
            let is_full = state.waiting.len() >= QUEUE_EVENTS_MAX || state.bytes + bytes > QUEUE_BYTES_MAX;
            !state.is_closed && !state.waiting.is_empty() && is_full
        };
        let mut state = self.0.wait_while(full);
        if !state.is_closed {
            state.bytes += bytes;
            state.waiting.push_back(told);
            self.0.changed.notify_all();
        }
    }
}

impl EventReceiver {
    /// Waits for messages and returns all there are. Returns none if the host has stopped.
    pub(super) fn receive(&self) -> VecDeque<ReportMessage> {
        let mut state = self.0.wait_while(|state| !state.is_closed && state.waiting.is_empty());
        state.bytes = 0;
        self.0.changed.notify_all();
        std::mem::take(&mut state.waiting)
    }
}

impl EventQueue {
    fn wait_while(
        &self,
        condition: impl FnMut(&mut EventQueueState) -> bool,
    ) -> MutexGuard<'_, EventQueueState> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, condition);
        state
    }

    fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use millrace_wasm::trace::TraceKind;

    use super::*;

    fn event(number: usize, bytes: usize) -> ReportMessage {
        let what = TraceKind::Woke { op: "x".repeat(bytes) };
        ReportMessage::Event { event: TraceEvent { run: number.to_string(), what }, trap: None }
    }

    /// Sends events of this size from another thread and receives them as late as possible. Returns the largest number
    /// that ever waited.
    fn most_waiting(count: usize, bytes: usize) -> usize {
        let (sender, receiver) = event_queue();
        let sending = thread::spawn(move || (0..count).for_each(|number| sender.send(event(number, bytes))));
        let (mut most, mut next) = (0, 0);
        while next < count {
            // Wait until the sender has finished or waits for room.
            let mut before = usize::MAX;
            loop {
                let waiting = receiver.0.state.lock().waiting.len();
                if sending.is_finished() || (waiting > 0 && waiting == before) {
                    break;
                }
                before = waiting;
                thread::yield_now();
            }
            let received = receiver.receive();
            most = most.max(received.len());
            for told in received {
                let ReportMessage::Event { event, .. } = told else { panic!("{told:?}") };
                assert_eq!(event.run, next.to_string(), "nothing is lost, and the order is kept");
                next += 1;
            }
        }
        sending.join().unwrap();
        most
    }

    #[test]
    fn no_more_events_wait_than_the_limit() {
        assert!(most_waiting(10 * QUEUE_EVENTS_MAX, 1) <= QUEUE_EVENTS_MAX);
    }

    #[test]
    fn no_more_bytes_wait_than_the_limit_except_those_of_one_event() {
        assert!(most_waiting(100, QUEUE_BYTES_MAX / 4) <= 3);
        assert_eq!(most_waiting(10, 2 * QUEUE_BYTES_MAX), 1);
    }

    #[test]
    fn nobody_waits_for_an_end_that_is_gone() {
        let (sender, receiver) = event_queue();
        drop(receiver);
        (0..2 * QUEUE_EVENTS_MAX).for_each(|number| sender.send(event(number, 1)));
        let (sender, receiver) = event_queue();
        sender.send(event(1, 1));
        drop(sender);
        assert_eq!((receiver.receive().len(), receiver.receive().len()), (1, 0));
    }
}
