//! A connection's end of the broker: requests in, items out.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use millrace_bus::{ConnId, Input, ReplyTo, Request};
use millrace_model::{Namespace, Requester};
use tokio::task::yield_now;

use crate::command::{Command, units};
use crate::inbox::Ended;
use crate::jobs::{self, EdgeMay};
use crate::outbox::{ConsumerAwake, Item, Outbox, Received};
use crate::shared::BrokerShared;
use crate::workers::Workers;

/// Units of the inbox's room that one connection reserves at a time, so that none fills it alone.
const ASK_UNITS_MAX: u32 = 1024;

/// A connection. Dropping it closes the connection in the engine, behind all its earlier requests.
#[derive(Debug)]
pub struct BusConnection {
    conn: ConnId,
    shared: Arc<BrokerShared>,
    workers: Weak<Workers>,
    outbox: Arc<Outbox>,
    may_commit: bool,
    /// The connection has asked for deliveries, which must not wait for a commit of its own task.
    has_subscribed: AtomicBool,
    evicted: AtomicBool,
}

impl BusConnection {
    pub(crate) fn open(
        conn: ConnId,
        namespace: Namespace,
        shared: Arc<BrokerShared>,
        workers: Weak<Workers>,
        outbox: Outbox,
        may_commit: bool,
    ) -> Result<BusConnection, Ended> {
        let outbox = Arc::new(outbox);
        shared.inbox.tell(Command::Open { conn, namespace, outbox: outbox.clone() })?;
        Ok(BusConnection {
            conn,
            shared,
            workers,
            outbox,
            may_commit,
            has_subscribed: AtomicBool::new(false),
            evicted: AtomicBool::new(false),
        })
    }

    pub fn conn(&self) -> ConnId {
        self.conn
    }

    /// Hands over requests, each with a number of the connection's own that comes back in its [`Item::Reply`]. Waits
    /// while the owner's queue is full; if the future is dropped, requests that were not handed over stay in
    /// `requests`. Answers may already be there when this returns.
    pub async fn send(&self, by: &Requester, requests: &mut Vec<(u64, Request)>) -> Result<(), Ended> {
        let units_max = ASK_UNITS_MAX.min(self.shared.inbox.room_max());
        while !requests.is_empty() {
            let (mut count, mut total) = (0, 0u32);
            for (_, request) in requests.iter() {
                let sum = total.saturating_add(units(request));
                if count > 0 && sum > units_max {
                    break;
                }
                (count, total) = (count + 1, sum);
            }
            // Checked before room in the inbox is reserved, so that no other connection waits for the check.
            let mut checked = Vec::with_capacity(count);
            for (_, request) in &requests[..count] {
                if matches!(request, Request::Subscribe(_)) {
                    self.has_subscribed.store(true, Relaxed);
                }
                checked.push(self.shared.schemas.check(request).await);
            }
            self.shared.inbox.reserve(total).await?;
            let conn = self.conn;
            let commands = requests.drain(..count).zip(checked).map(|((number, request), checked)| {
                let units = units(&request);
                let to = ReplyTo::Conn { conn, request: number };
                (Command::Request { to, by: by.clone(), request, checked }, units)
            });
            let consumer_awake = self.outbox.mark_consumer_awake();
            let may = EdgeMay { commit: self.may_commit(&consumer_awake), gather: true };
            let gathering = jobs::hand_over(&self.shared.inbox, &self.workers, commands, may)?;
            drop(consumer_awake);
            if let Some(gathering) = gathering {
                // tokio polls all tasks that are ready, and looks for more of them, before it comes back here.
                yield_now().await;
                let consumer_awake = self.outbox.mark_consumer_awake();
                gathering.decide(self.may_commit(&consumer_awake));
            }
        }
        Ok(())
    }

    /// If items already wait to be written, this task must not commit: they would wait for a sync.
    fn may_commit(&self, consumer_awake: &ConsumerAwake<'_>) -> bool {
        self.may_commit && consumer_awake.is_empty && !self.has_subscribed.load(Relaxed)
    }

    /// Runs the task that sends and receives on this connection. `drive` spares the task a wake-up: if the task receives, in
    /// the same poll, the answers that its own requests have brought, it is not woken for them. Without `drive` it is.
    pub async fn drive<F: Future>(&self, task: F) -> F::Output {
        self.outbox.watch(task).await
    }

    /// Waits for items and takes as many as there are, within the bounds.
    pub async fn receive(&self, items: &mut Vec<Item>, items_max: usize, bytes_max: usize) -> Received {
        self.outbox.receive(items, items_max, bytes_max).await
    }

    /// Takes the items that wait now; `None` if there are none.
    pub fn try_receive(&self, items: &mut Vec<Item>, items_max: usize, bytes_max: usize) -> Option<Received> {
        self.outbox.try_receive(items, items_max, bytes_max)
    }

    /// So many bytes of the items taken have been written to the socket.
    pub fn written(&self, bytes: usize) {
        if self.outbox.written(bytes) {
            self.shared.inbox.complete([Input::Drained { conn: self.conn }]);
        }
    }

    /// Waits while the outbox is above its soft bound, because the other side does not read.
    pub async fn relieved(&self) {
        self.outbox.relieved().await;
    }

    /// Marks that the server closes the connection, not its client: when the link is dropped, its events are given back
    /// without counting an attempt.
    pub fn evict(&self) {
        self.evicted.store(true, Relaxed);
    }

    pub fn congested(&self) -> bool {
        self.outbox.congested()
    }

    /// Returns a handle that tells how much waits to be written, also for other tasks than the connection's own.
    pub fn backlog(&self) -> OutboundBacklog {
        OutboundBacklog(self.outbox.clone())
    }
}

/// How much waits to be written to a connection.
#[derive(Clone, Debug)]
pub struct OutboundBacklog(Arc<Outbox>);

impl OutboundBacklog {
    /// Bytes that the client has not read, by an upper estimate.
    pub fn unread_bytes(&self) -> usize {
        self.0.unread_bytes()
    }

    /// Whether so much waits that deliveries are held back.
    pub fn is_congested(&self) -> bool {
        self.0.congested()
    }
}

impl Drop for BusConnection {
    fn drop(&mut self) {
        self.outbox.close();
        // An error means that the broker has ended: nobody needs to be told.
        let evicted = self.evicted.load(Relaxed);
        let _ = self.shared.inbox.tell(Command::Close { conn: self.conn, evicted });
    }
}
