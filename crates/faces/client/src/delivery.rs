//! An event that was delivered to this member of a group.

use millrace_model::{JsonText, Offset, Partition};
use millrace_wire::{Ack, Message, Nack};
use tokio::sync::oneshot;

use crate::client::Requests;
use crate::command::ClientCommand;
use crate::error::ClientError;

/// A delivered event. Not acknowledged until `ack` or `nack` is called; if dropped, it stays leased until the ack
/// timeout.
#[derive(Debug)]
pub struct Delivery {
    pub message: Message,
    epoch: u64,
    requests: Requests,
}

impl Delivery {
    pub(crate) fn new(message: Message, epoch: u64, requests: Requests) -> Delivery {
        Delivery { message, epoch, requests }
    }

    pub fn payload(&self) -> &JsonText {
        &self.message.envelope.payload
    }

    pub fn key(&self) -> Option<&str> {
        self.message.envelope.key.as_deref()
    }

    pub fn partition(&self) -> Partition {
        self.message.partition
    }

    pub fn offset(&self) -> Offset {
        self.message.offset
    }

    /// Returns the number of this delivery of the event, from 1 on.
    pub fn attempts(&self) -> u32 {
        self.message.envelope.attempts
    }

    /// Queues the ack. If the connection is lost before it arrives, the event is delivered again.
    pub async fn ack(&self) -> Result<(), ClientError> {
        self.requests.send(ClientCommand::Ack { ack: self.place(), epoch: self.epoch, reply: None }).await
    }

    /// Resolves when the ack is durable.
    pub async fn ack_confirmed(&self) -> Result<(), ClientError> {
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(ClientCommand::Ack { ack: self.place(), epoch: self.epoch, reply: Some(reply) })
            .await?;
        self.requests.answer(answer).await
    }

    /// Gives the event back, to be delivered again at once or after `delay_ms`.
    pub async fn nack(&self, reason: Option<&str>, delay_ms: Option<u64>) -> Result<(), ClientError> {
        let nack = Nack { delivery: self.place(), reason: reason.map(Into::into), delay_ms };
        self.requests.send(ClientCommand::Nack { nack, epoch: self.epoch, reply: None }).await
    }

    /// Like [`Delivery::nack`], but resolves when the server has taken the event back.
    pub async fn nack_confirmed(
        &self,
        reason: Option<&str>,
        delay_ms: Option<u64>,
    ) -> Result<(), ClientError> {
        let nack = Nack { delivery: self.place(), reason: reason.map(Into::into), delay_ms };
        let (reply, answer) = oneshot::channel();
        self.requests.send(ClientCommand::Nack { nack, epoch: self.epoch, reply: Some(reply) }).await?;
        self.requests.answer(answer).await
    }

    fn place(&self) -> Ack {
        Ack {
            topic: self.message.topic.clone(),
            partition: self.message.partition,
            group: self.message.group.clone(),
            offset: self.message.offset,
        }
    }
}
