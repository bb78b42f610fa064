//! Requests that wait for the server's answer.

use millrace_wire::{Published, PublishedBatch, ServerFrame};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::command::Reply;
use crate::error::ClientError;
use crate::room::RoomTaken;

/// The frame of a publish is kept, shared with the socket's queue, so that it can be sent again.
#[derive(Debug)]
pub(crate) enum Pending {
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

impl Pending {
    /// The frame, for those that outlive a connection.
    pub(crate) fn publish_frame(&self) -> Option<&Utf8Bytes> {
        match self {
            Pending::Publish { frame, .. } | Pending::PublishBatch { frame, .. } => Some(frame),
            Pending::Plain { .. } => None,
        }
    }

    /// Whoever asked may be gone by now, which is no concern of anyone's.
    pub(crate) fn fail(self, error: ClientError) {
        match self {
            Pending::Publish { reply, .. } => drop(reply.send(Err(error))),
            Pending::PublishBatch { reply, .. } => drop(reply.send(Err(error))),
            Pending::Plain { reply } => drop(reply.send(Err(error))),
        }
    }

    pub(crate) fn settle(self, answer: ServerFrame) {
        match (self, answer) {
            (pending, ServerFrame::Error(error)) => pending.fail(ClientError::Refused(error)),
            (Pending::Publish { reply, .. }, ServerFrame::Published(published)) => {
                drop(reply.send(Ok(published)));
            }
            (Pending::PublishBatch { reply, .. }, ServerFrame::PublishedBatch(published)) => {
                drop(reply.send(Ok(published)));
            }
            (Pending::Plain { reply }, ServerFrame::Ok(_) | ServerFrame::Pong(_)) => drop(reply.send(Ok(()))),
            (pending, other) => pending.fail(ClientError::Protocol(format!("{other:?}"))),
        }
    }
}
