//! Requests that wait for the server's answer.

use millrace_wire::ServerFrame;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::command::Reply;
use crate::error::ClientError;
use crate::mailbox::{Settled, Unconfirmed};

/// A request that waits for its answer. The frame of a publish is kept, shared with the queue of outgoing frames, so
/// that it can be sent again.
#[derive(Debug)]
pub(crate) enum PendingReply {
    Publish {
        frame: Utf8Bytes,
        unconfirmed: Unconfirmed,
    },
    PublishBatch {
        frame: Utf8Bytes,
        unconfirmed: Unconfirmed,
    },
    /// Answered by OK or PONG.
    Plain {
        reply: Reply<()>,
    },
}

impl PendingReply {
    /// Returns the frame of a publish, which outlives a connection.
    pub(crate) fn publish_frame(&self) -> Option<&Utf8Bytes> {
        match self {
            PendingReply::Publish { frame, .. } | PendingReply::PublishBatch { frame, .. } => Some(frame),
            PendingReply::Plain { .. } => None,
        }
    }

    /// Adds an error to the answers.
    pub(crate) fn fail(self, error: ClientError, settled: &mut Vec<Settled>) {
        match self {
            PendingReply::Publish { unconfirmed, .. } => settled.push(Settled::One(unconfirmed, Err(error))),
            PendingReply::PublishBatch { unconfirmed, .. } => {
                settled.push(Settled::Batch(unconfirmed, Err(error)));
            }
            PendingReply::Plain { reply } => settled.push(Settled::Plain(reply, Err(error))),
        }
    }

    /// Adds the answer that the server gave.
    pub(crate) fn settle(self, answer: ServerFrame, settled: &mut Vec<Settled>) {
        match (self, answer) {
            (pending, ServerFrame::Error(error)) => pending.fail(ClientError::Refused(error), settled),
            (PendingReply::Publish { unconfirmed, .. }, ServerFrame::Published(published)) => {
                settled.push(Settled::One(unconfirmed, Ok(published)));
            }
            (PendingReply::PublishBatch { unconfirmed, .. }, ServerFrame::PublishedBatch(published)) => {
                settled.push(Settled::Batch(unconfirmed, Ok(published)));
            }
            (PendingReply::Plain { reply }, ServerFrame::Ok(_) | ServerFrame::Pong(_)) => {
                settled.push(Settled::Plain(reply, Ok(())));
            }
            (pending, other) => pending.fail(ClientError::Protocol(format!("{other:?}")), settled),
        }
    }
}
