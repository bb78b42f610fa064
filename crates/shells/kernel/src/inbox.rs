//! The way to the loop from other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use millrace_broker::SystemClock;
use millrace_model::{EventId, OsId, OsMessage, Timestamp};
use millrace_router::{By, CapabilityId, ConnId, DeliveryId, Input, Router, Settled};
use tokio::sync::{mpsc, oneshot};

use crate::capability::Capability;
use crate::change::ChangeError;
use crate::conns::{Account, Line};

/// The loop is gone: nothing will be answered any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the loop has ended")]
pub struct Ended;

/// What other threads tell the loop.
pub(crate) enum Told {
    Input(Input),
    /// An actor's request, and who waits for its outcome.
    Asks {
        from: CapabilityId,
        during: DeliveryId,
        message: OsMessage,
        outcome: oneshot::Sender<Arc<OsMessage>>,
    },
    /// An event of the bus, and who waits for it to be processed.
    Bus {
        to: CapabilityId,
        message: OsMessage,
        settled: oneshot::Sender<Settled>,
    },
    /// A connection that lives elsewhere.
    Open {
        conn: ConnId,
        by: By,
        lines: mpsc::UnboundedSender<Line>,
        account: Arc<Account>,
    },
    Change {
        gone: Vec<CapabilityId>,
        come: Vec<Capability>,
        done: oneshot::Sender<Result<Vec<CapabilityId>, ChangeError>>,
    },
    Listen {
        listener: std::os::unix::net::UnixListener,
    },
    /// Everybody who is to be there at the start is there.
    Begin,
    Look(Box<dyn FnOnce(&Router) + Send>),
    Stop {
        grace: Duration,
    },
}

/// May be sent and cloned. Whoever tells the loop something waits while `inbox_max` things wait there.
#[derive(Clone, Debug)]
pub struct LoopLink {
    pub(crate) told: mpsc::Sender<Told>,
    pub(crate) mint: Arc<Mint>,
}

impl LoopLink {
    pub(crate) async fn tell(&self, told: Told) -> Result<(), Ended> {
        self.told.send(told).await.map_err(|_| Ended)
    }

    /// Hands an event of the bus to a capability and waits for what becomes of it.
    pub async fn bus_event(&self, to: CapabilityId, message: OsMessage) -> Result<Settled, Ended> {
        let (settled, is_settled) = oneshot::channel();
        self.tell(Told::Bus { to, message, settled }).await?;
        is_settled.await.map_err(|_| Ended)
    }

    /// Looks at the engine between two turns.
    pub async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Router) -> T + Send + 'static,
    ) -> Result<T, Ended> {
        let (answer, seen) = oneshot::channel();
        let look = Box::new(move |router: &Router| {
            // Nobody waits for it any more: fine.
            let _ = answer.send(look(router));
        });
        self.tell(Told::Look(look)).await?;
        seen.await.map_err(|_| Ended)
    }

    /// A fresh id and the time, for a message.
    pub fn stamp(&self) -> (OsId, Timestamp) {
        self.mint.stamp()
    }
}

/// Makes ids of messages: UUIDs of version 7, told apart by the process's own draw and a count.
#[derive(Debug)]
pub(crate) struct Mint {
    clock: SystemClock,
    nonce: u64,
    count: AtomicU32,
}

impl Mint {
    pub(crate) fn new(nonce: u64, clock: SystemClock) -> Mint {
        Mint { clock, nonce, count: AtomicU32::new(0) }
    }

    pub(crate) fn stamp(&self) -> (OsId, Timestamp) {
        let timestamp = self.now();
        (self.id_at(timestamp), timestamp)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now().wall
    }

    pub(crate) fn id_at(&self, at: Timestamp) -> OsId {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        OsId::of_event(&EventId::mint(at, self.nonce, count))
    }
}
