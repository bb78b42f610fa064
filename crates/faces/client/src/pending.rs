//! Requests that wait for the server's answer.

use millrace_wire::{Published, PublishedBatch, ServerFrame};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::command::Reply;
use crate::error::ClientError;
use crate::room::RoomTaken;

/// A request that waits for its answer. The frame of a publish is kept, shared with the queue of outgoing frames, so
/// that it can be sent again.
#[derive(Debug)]
pub(crate) enum PendingReply {
    Publish {
        frame: Utf8Bytes,
        reply: Reply<Published>,
        _room: RoomTaken,
    },
    PublishBatch {
        frame: Utf8Bytes,
        reply: Reply<PublishedBatch>,
        _room: RoomTaken,
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

    /// Sends an error to the requester. A requester that is gone by now is ignored.
    pub(crate) fn fail(self, error: ClientError) {
        match self {
            PendingReply::Publish { reply, .. } => drop(reply.send(Err(error))),
            PendingReply::PublishBatch { reply, .. } => drop(reply.send(Err(error))),
            PendingReply::Plain { reply } => drop(reply.send(Err(error))),
        }
    }

    pub(crate) fn settle(self, answer: ServerFrame) {
        match (self, answer) {
            (pending, ServerFrame::Error(error)) => pending.fail(ClientError::Refused(error)),
            (PendingReply::Publish { reply, .. }, ServerFrame::Published(published)) => {
                drop(reply.send(Ok(published)));
            }
            (PendingReply::PublishBatch { reply, .. }, ServerFrame::PublishedBatch(published)) => {
                drop(reply.send(Ok(published)));
            }
            (PendingReply::Plain { reply }, ServerFrame::Ok(_) | ServerFrame::Pong(_)) => {
                drop(reply.send(Ok(())));
            }
            (pending, other) => pending.fail(ClientError::Protocol(format!("{other:?}"))),
        }
    }
}
