//! Commands of the handles to the background task.

use std::sync::Arc;

use millrace_wire::{Ack, Nack, Position, Publish, PublishBatch, Subscribe, Unsubscribe};
use tokio::sync::oneshot;

use crate::error::ClientError;
use crate::mailbox::Unconfirmed;
use crate::message_queue::MessageQueue;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, ClientError>>;

#[derive(Debug)]
pub(crate) enum ClientCommand {
    Publish {
        publish: Publish,
        unconfirmed: Unconfirmed,
    },
    PublishBatch {
        batch: PublishBatch,
        unconfirmed: Unconfirmed,
    },
    Subscribe {
        subscribe: Subscribe,
        queue: Arc<MessageQueue>,
        reply: Reply<Vec<Position>>,
    },
    Unsubscribe {
        unsubscribe: Unsubscribe,
        reply: Option<Reply<()>>,
    },
    Ack {
        ack: Ack,
        epoch: u64,
        reply: Option<Reply<()>>,
    },
    Nack {
        nack: Nack,
        epoch: u64,
        reply: Option<Reply<()>>,
    },
    Flow {
        credits: u64,
    },
    Ping {
        reply: Reply<()>,
    },
    /// Write all earlier requests, close the WebSocket, end.
    Close {
        done: oneshot::Sender<()>,
    },
}
