//! The writer's queue: batches on their way to the disk, and its bounds.

use std::sync::Arc;

use millrace_bus::Token;
use millrace_shell::{CommitQueue, RowReply};

use crate::inbox::BacklogLevel;
use crate::settings::BrokerSettings;

/// Batches on their way to the disk. Bounded by the owner, which takes no requests while the bounds are exceeded
/// ([`BoundedBacklog`]), and by the byte budget of each row writer.
pub(crate) type Backlog = CommitQueue<BatchOrigin>;

/// The sender of a batch.
#[derive(Debug)]
pub(crate) enum BatchOrigin {
    Engine(Token),
    RowWriter(RowReply),
}

/// The backlog as the inbox sees it.
#[derive(Debug)]
pub(crate) struct BoundedBacklog {
    queue: Arc<Backlog>,
    batches_max: usize,
    bytes_max: usize,
}

impl BoundedBacklog {
    pub(crate) fn new(queue: Arc<Backlog>, settings: &BrokerSettings) -> BoundedBacklog {
        BoundedBacklog {
            queue,
            batches_max: settings.backlog_batches_max,
            bytes_max: settings.backlog_bytes_max,
        }
    }
}

impl BacklogLevel for BoundedBacklog {
    fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    fn accepts_requests(&self) -> bool {
        self.queue.batches() < self.batches_max && self.queue.bytes() < self.bytes_max
    }
}
