//! Messages that have been delivered to a subscription and not been taken yet.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use millrace_wire::Message;
use parking_lot::{Mutex, MutexGuard};

use crate::error::ClientError;

/// A queue from the background task to a subscription, which is its only reader. The lock is held only to move messages.
#[derive(Debug)]
pub(crate) struct MessageQueue {
    state: Mutex<MessageQueueState>,
    messages_max: usize,
}

#[derive(Debug, Default)]
struct MessageQueueState {
    messages: VecDeque<Box<Message>>,
    /// The connection that the messages came on.
    epoch: u64,
    /// The reader, if it found nothing and waits.
    reader: Option<Waker>,
    end: Option<ClientError>,
    abandoned: bool,
}

impl MessageQueue {
    /// The server's window bounds the unacknowledged messages; twice that leaves room for redeliveries after timeouts.
    pub(crate) fn new(max_inflight: u32) -> MessageQueue {
        let messages_max = (max_inflight as usize).saturating_mul(2);
        MessageQueue { state: Mutex::default(), messages_max }
    }

    /// Takes the messages out of `arrived` and wakes the reader if it waits. Returns false when the subscription was
    /// dropped, so that nobody will take them. Messages without room are dropped: their leases expire and the server
    /// delivers them again.
    pub(crate) fn put(&self, arrived: &mut VecDeque<Box<Message>>, epoch: u64) -> bool {
        let mut state = self.state.lock();
        if state.abandoned {
            return false;
        }
        state.epoch = epoch;
        let room = self.messages_max.saturating_sub(state.messages.len());
        state.messages.extend(arrived.drain(..).take(room));
        wake_reader(state);
        true
    }

    /// Drops the messages because the connection is gone: the server will deliver them again, perhaps to another
    /// member. Returns how many they were.
    pub(crate) fn clear(&self) -> usize {
        std::mem::take(&mut self.state.lock().messages).len()
    }

    pub(crate) fn close(&self, error: ClientError) {
        let mut state = self.state.lock();
        state.messages.clear();
        state.end.get_or_insert(error);
        wake_reader(state);
    }

    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.abandoned = true;
        state.messages.clear();
    }

    pub(crate) async fn receive(&self) -> Result<(Box<Message>, u64), ClientError> {
        poll_fn(|context| self.poll_take(context)).await
    }

    fn poll_take(&self, context: &Context<'_>) -> Poll<Result<(Box<Message>, u64), ClientError>> {
        let mut state = self.state.lock();
        let Some(taken) = state.take().transpose() else {
            state.reader = Some(context.waker().clone());
            return Poll::Pending;
        };
        Poll::Ready(taken)
    }

    pub(crate) fn try_take(&self) -> Result<Option<(Box<Message>, u64)>, ClientError> {
        self.state.lock().take()
    }
}

impl MessageQueueState {
    fn take(&mut self) -> Result<Option<(Box<Message>, u64)>, ClientError> {
        match (self.messages.pop_front(), &self.end) {
            (Some(message), _) => Ok(Some((message, self.epoch))),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Ok(None),
        }
    }
}

/// Wakes the reader after the lock was given back, which the reader needs next.
fn wake_reader(mut state: MutexGuard<'_, MessageQueueState>) {
    let reader = state.reader.take();
    drop(state);
    if let Some(reader) = reader {
        reader.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use millrace_wire::ServerFrame;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Woken>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn messages(offsets: std::ops::Range<u64>) -> VecDeque<Box<Message>> {
        let one = |offset| {
            let text = format!(
                "{{\"type\":\"MESSAGE\",\"topic\":\"t\",\"partition\":0,\"group\":\"g\",\"offset\":{offset},\"envelope\":\
                 {{\"id\":\"i\",\"ts\":1,\"topic\":\"t\",\"partition\":0,\"offset\":{offset},\"payload\":1}}}}"
            );
            match ServerFrame::parse(&text) {
                Ok(ServerFrame::Message(message)) => message,
                other => panic!("{other:?}"),
            }
        };
        offsets.map(one).collect()
    }

    #[test]
    fn messages_that_come_together_wake_the_reader_once() {
        let queue = MessageQueue::new(10);
        let woken = Arc::new(Woken::default());
        let times = || woken.0.load(Ordering::Relaxed);
        let waker = woken.clone().into();
        let mut context = Context::from_waker(&waker);
        let mut waiting = pin!(queue.receive());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        assert!(queue.put(&mut messages(1..4), 1) && queue.put(&mut messages(4..6), 1));
        assert_eq!(times(), 1);
        assert!(waiting.as_mut().poll(&mut context).is_ready());
        for offset in 2..6 {
            let (message, _) = queue.try_take().unwrap().unwrap();
            assert_eq!(message.offset.0, offset);
        }
        // Nobody waits, so nobody is woken; who comes then finds the messages.
        assert!(queue.put(&mut messages(6..7), 1));
        assert_eq!(times(), 1);
        assert!(pin!(queue.receive()).poll(&mut context).is_ready());
    }

    #[test]
    fn the_bound_holds_within_a_burst() {
        let queue = MessageQueue::new(2);
        let mut arrived = messages(1..10);
        assert!(queue.put(&mut arrived, 1));
        assert!(arrived.is_empty());
        assert_eq!(queue.clear(), 4);
    }
}
