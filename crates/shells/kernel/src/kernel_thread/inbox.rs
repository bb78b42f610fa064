//! The queue of commands to the loop from other threads (`KernelSender`); for tasks on the loop's own thread there is
//! `local_queue.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use millrace_model::{EventId, Now, OsId, OsMessage, Requester, Timestamp};
use millrace_router::{CapabilityId, ConnId, DeliveryId, Input, Router, Settled};
use millrace_shell::SystemClock;
use tokio::sync::{mpsc, oneshot};

use crate::capabilities::capability::Capability;
use crate::capabilities::change::{CapabilityView, ChangeError};
use crate::clients::conns::{Account, Line, SocketConnection};

/// The loop has ended: nothing will be answered any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the loop has ended")]
pub struct KernelEnded;

/// A command that another thread sends to the loop.
pub(crate) enum KernelCommand {
    Input(Input),
    /// A request of an actor; `outcome` gets its outcome.
    Asks {
        from: CapabilityId,
        during: DeliveryId,
        message: OsMessage,
        outcome: oneshot::Sender<Arc<OsMessage>>,
    },
    /// An event of the bus for a capability; `settled` is told when it has been processed.
    Bus {
        to: CapabilityId,
        message: OsMessage,
        settled: oneshot::Sender<Settled>,
    },
    /// A new connection that another thread serves.
    Open {
        conn: ConnId,
        by: Requester,
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
    /// All capabilities of the start are installed: see [`crate::KernelHandle::begin`].
    Begin,
    WithRouter(Box<dyn FnOnce(&Router) + Send>),
    /// Lists the capabilities.
    Capabilities {
        found: oneshot::Sender<Vec<CapabilityView>>,
    },
    /// Lists the connections of the socket.
    SocketConnections {
        found: oneshot::Sender<Vec<SocketConnection>>,
    },
    /// Closes a connection of the socket; `done` is told whether there was one.
    Disconnect {
        conn: ConnId,
        done: oneshot::Sender<bool>,
    },
    Stop {
        grace: Duration,
    },
}

/// A handle to the loop for other threads. Can be cloned and sent. Callers wait while the queue holds `inbox_max`
/// commands.
#[derive(Clone, Debug)]
pub struct KernelSender {
    pub(crate) commands: mpsc::Sender<KernelCommand>,
    pub(crate) mint: Arc<Mint>,
}

impl KernelSender {
    pub(crate) async fn send(&self, command: KernelCommand) -> Result<(), KernelEnded> {
        self.commands.send(command).await.map_err(|_| KernelEnded)
    }

    /// Hands an event of the bus to a capability and waits until it is settled.
    pub async fn bus_event(&self, to: CapabilityId, message: OsMessage) -> Result<Settled, KernelEnded> {
        let (settled, is_settled) = oneshot::channel();
        self.send(KernelCommand::Bus { to, message, settled }).await?;
        is_settled.await.map_err(|_| KernelEnded)
    }

    /// Calls `read` with the engine between two turns, on the loop's thread, and returns its result.
    pub async fn with_router<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Router) -> T + Send + 'static,
    ) -> Result<T, KernelEnded> {
        let (answer, seen) = oneshot::channel();
        let read = Box::new(move |router: &Router| {
            // An error means that the caller no longer waits: fine.
            let _ = answer.send(read(router));
        });
        self.send(KernelCommand::WithRouter(read)).await?;
        seen.await.map_err(|_| KernelEnded)
    }

    /// A fresh id and the current time, for a new message.
    pub fn stamp(&self) -> (OsId, Timestamp) {
        self.mint.stamp()
    }
}

/// Makes the ids of messages: UUIDs of version 7, unique by the process's random nonce and a counter.
#[derive(Debug)]
pub struct Mint {
    clock: SystemClock,
    nonce: u64,
    count: AtomicU32,
}

impl Mint {
    pub fn new(nonce: u64, clock: SystemClock) -> Mint {
        Mint { clock, nonce, count: AtomicU32::new(0) }
    }

    /// A fresh id and the current time.
    pub fn stamp(&self) -> (OsId, Timestamp) {
        let timestamp = self.now();
        (self.id_at(timestamp), timestamp)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.instant().wall
    }

    /// The time on all clocks.
    pub(crate) fn instant(&self) -> Now {
        self.clock.now()
    }

    pub(crate) fn id_at(&self, at: Timestamp) -> OsId {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        OsId::of_event(&EventId::mint(at, self.nonce, count))
    }
}
