//! Messages that have been delivered to a subscription and not been taken yet.

use std::collections::VecDeque;

use millrace_wire::Message;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::error::ClientError;

/// A queue from the background task to a subscription. Uses a std mutex, because the lock is held only for a push or a
/// pop.
#[derive(Debug)]
pub(crate) struct MessageQueue {
    state: Mutex<MessageQueueState>,
    ready: Notify,
    messages_max: usize,
}

#[derive(Debug, Default)]
struct MessageQueueState {
    messages: VecDeque<Box<Message>>,
    /// The connection that the messages came on.
    epoch: u64,
    end: Option<ClientError>,
    abandoned: bool,
}

impl MessageQueue {
    /// The server's window bounds the unacknowledged messages; twice that leaves room for redeliveries after timeouts.
    pub(crate) fn new(max_inflight: u32) -> MessageQueue {
        let messages_max = (max_inflight as usize).saturating_mul(2);
        MessageQueue { state: Mutex::default(), ready: Notify::new(), messages_max }
    }

    /// Returns false when the subscription was dropped, so that nobody will take the message. A message without room is
    /// dropped: its lease expires and the server delivers it again.
    pub(crate) fn put(&self, message: Box<Message>, epoch: u64) -> bool {
        let mut state = self.state.lock();
        if state.abandoned {
            return false;
        }
        state.epoch = epoch;
        if state.messages.len() < self.messages_max {
            state.messages.push_back(message);
            drop(state);
            self.ready.notify_one();
        }
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
        drop(state);
        self.ready.notify_one();
    }

    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.abandoned = true;
        state.messages.clear();
    }

    pub(crate) async fn receive(&self) -> Result<(Box<Message>, u64), ClientError> {
        loop {
            if let Some(taken) = self.try_take()? {
                return Ok(taken);
            }
            self.ready.notified().await;
        }
    }

    pub(crate) fn try_take(&self) -> Result<Option<(Box<Message>, u64)>, ClientError> {
        let mut state = self.state.lock();
        match (state.messages.pop_front(), &state.end) {
            (Some(message), _) => Ok(Some((message, state.epoch))),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Ok(None),
        }
    }
}
