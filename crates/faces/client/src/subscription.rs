//! A subscription: the client is a member of a group and receives its deliveries.

use std::sync::Arc;

use millrace_wire::{Position, Unsubscribe};
use tokio::sync::oneshot;

use crate::client::Requests;
use crate::command::ClientCommand;
use crate::delivery::Delivery;
use crate::error::ClientError;
use crate::message_queue::MessageQueue;
use crate::options::SubscribeOptions;

/// Membership in a group. Dropping it leaves the group; events that were delivered and not acknowledged go to other
/// members.
#[derive(Debug)]
pub struct Subscription {
    /// The positions of the group when the subscription was confirmed.
    pub start: Vec<Position>,
    options: SubscribeOptions,
    queue: Arc<MessageQueue>,
    requests: Requests,
    left: bool,
}

impl Subscription {
    pub(crate) fn new(
        options: SubscribeOptions,
        queue: Arc<MessageQueue>,
        requests: Requests,
    ) -> Subscription {
        Subscription { start: Vec::new(), options, queue, requests, left: false }
    }

    /// Returns the next delivery. An error is the end of the subscription: the server ended it, or the client is
    /// closed. A lost connection is not an end.
    pub async fn next(&mut self) -> Result<Delivery, ClientError> {
        let (message, epoch) = self.queue.receive().await?;
        Ok(Delivery::new(*message, epoch, self.requests.clone()))
    }

    /// Returns a delivery that has already arrived, without waiting.
    pub fn try_next(&mut self) -> Result<Option<Delivery>, ClientError> {
        let taken = self.queue.try_take()?;
        Ok(taken.map(|(message, epoch)| Delivery::new(*message, epoch, self.requests.clone())))
    }

    /// Leaves the group and waits until the server has confirmed it.
    pub async fn unsubscribe(mut self) -> Result<(), ClientError> {
        self.left = true;
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(ClientCommand::Unsubscribe { unsubscribe: self.request(), reply: Some(reply) })
            .await?;
        self.requests.answer(answer).await
    }

    /// Marks the subscription as left, because the server never confirmed it.
    pub(crate) fn forget(&mut self) {
        self.left = true;
    }

    fn request(&self) -> Unsubscribe {
        Unsubscribe { topic: self.options.topic.clone(), group: self.options.group.clone() }
    }
}

impl Drop for Subscription {
    /// Leaves the group. If the task's queue is full now, the next delivery finds the inbox abandoned and makes the
    /// task unsubscribe.
    fn drop(&mut self) {
        if !self.left {
            self.queue.abandon();
            self.requests.try_send(ClientCommand::Unsubscribe { unsubscribe: self.request(), reply: None });
        }
    }
}
