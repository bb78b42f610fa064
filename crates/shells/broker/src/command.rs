//! Messages from edges to the owner, and the inbox that carries them.

use std::sync::Arc;

use millrace_bus::{ConnId, Input, Reply, ReplyTo, Request, SchemaVerdict};
use millrace_model::{Namespace, Requester};
use tokio::sync::oneshot;

use crate::backlog::BoundedBacklog;
use crate::inbox::{Inbox, Turn};
use crate::outbox::Outbox;

pub(crate) type BrokerInbox = Inbox<Command, Input, BoundedBacklog>;
pub(crate) type BrokerTurn = Turn<Command, Input>;

/// A message from an edge to the owner, handled in order.
#[derive(Debug)]
pub(crate) enum Command {
    Open {
        conn: ConnId,
        namespace: Namespace,
        outbox: Arc<Outbox>,
    },
    Request {
        to: ReplyTo,
        by: Requester,
        request: Request,
        checked: Option<Box<SchemaVerdict>>,
    },
    Call {
        answer: oneshot::Sender<Reply>,
        by: Requester,
        request: Request,
        checked: Option<Box<SchemaVerdict>>,
    },
    Close {
        conn: ConnId,
        evicted: bool,
    },
    Stop {
        stopped: oneshot::Sender<()>,
    },
}

/// Bytes that take one unit of the inbox's room.
pub(crate) const UNIT_BYTES: usize = 1024;

/// How many units of the inbox's room a request takes.
pub(crate) fn units(request: &Request) -> u32 {
    let bytes = match request {
        Request::Publish(publish) => publish.event.body.bytes(),
        Request::PublishBatch(batch) => batch.events.iter().map(|event| event.body.bytes()).sum(),
        _ => 0,
    };
    u32::try_from(1 + bytes / UNIT_BYTES).unwrap_or(u32::MAX)
}
