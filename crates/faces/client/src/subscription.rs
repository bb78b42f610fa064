//! A place in a group: deliveries come out of it.

use std::sync::Arc;

use millrace_wire::{Position, Unsubscribe};
use tokio::sync::oneshot;

use crate::client::Requests;
use crate::command::Command;
use crate::delivery::Delivery;
use crate::error::ClientError;
use crate::inbox::Inbox;
use crate::options::SubscribeOptions;

/// Dropping it leaves the group; what was delivered and not acknowledged goes to other members.
#[derive(Debug)]
pub struct Subscription {
    /// Where the group stood when the subscription was confirmed.
    pub start: Vec<Position>,
    options: SubscribeOptions,
    inbox: Arc<Inbox>,
    requests: Requests,
    left: bool,
}

impl Subscription {
    pub(crate) fn new(options: SubscribeOptions, inbox: Arc<Inbox>, requests: Requests) -> Subscription {
        Subscription { start: Vec::new(), options, inbox, requests, left: false }
    }

    /// The next delivery. An error is the end of the subscription: the server took it back, or the client is closed.
    /// A lost connection is not an end.
    pub async fn next(&mut self) -> Result<Delivery, ClientError> {
        let (message, epoch) = self.inbox.take().await?;
        Ok(Delivery::new(*message, epoch, self.requests.clone()))
    }

    /// A delivery that is already here.
    pub fn try_next(&mut self) -> Result<Option<Delivery>, ClientError> {
        let taken = self.inbox.try_take()?;
        Ok(taken.map(|(message, epoch)| Delivery::new(*message, epoch, self.requests.clone())))
    }

    /// Leaves the group and waits until the server has confirmed it.
    pub async fn unsubscribe(mut self) -> Result<(), ClientError> {
        self.left = true;
        let (reply, answer) = oneshot::channel();
        self.requests.send(Command::Unsubscribe { unsubscribe: self.request(), reply: Some(reply) }).await?;
        self.requests.answer(answer).await
    }

    /// The server never took it: there is nothing to leave.
    pub(crate) fn forget(&mut self) {
        self.left = true;
    }

    fn request(&self) -> Unsubscribe {
        Unsubscribe { topic: self.options.topic.clone(), group: self.options.group.clone() }
    }
}

impl Drop for Subscription {
    /// If the task's queue is full now, the next delivery finds the inbox abandoned and makes the task leave.
    fn drop(&mut self) {
        if !self.left {
            self.inbox.abandon();
            self.requests.try_send(Command::Unsubscribe { unsubscribe: self.request(), reply: None });
        }
    }
}
