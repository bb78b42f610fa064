//! The handle through which edges reach the owner of the engine.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use millrace_bus::{ConnId, Input, Note, Reply, Request};
use millrace_model::{Namespace, Requester};
use millrace_shell::{BatchWriter, RowWriter, SystemClock};
use tokio::sync::{mpsc, oneshot};

use crate::command::{Command, UNIT_BYTES, units};
use crate::connection::BusConnection;
use crate::health::Health;
use crate::inbox::Ended;
use crate::jobs::{self, EdgeMay};
use crate::metrics::{self, ShellView};
use crate::outbox::Outbox;
use crate::settings::BrokerSettings;
use crate::shared::BrokerShared;
use crate::workers::Workers;

/// Batches of one [`BatchWriter`] on their way to the disk. Few, because each may be as large as a batch can be.
const BATCHES_MAX: usize = 8;

/// A request that was handed over.
#[derive(Debug)]
pub struct BrokerCall(oneshot::Receiver<Reply>);

impl BrokerCall {
    /// Waits for the answer.
    pub async fn reply(self) -> Result<Reply, Ended> {
        self.0.await.map_err(|_| Ended)
    }
}

#[derive(Clone, Debug)]
pub struct BrokerHandle {
    shared: Arc<BrokerShared>,
    /// Weak, because a longer-lived reference would keep the store open.
    workers: Weak<Workers>,
    /// Whether the calling task may commit inline, which waits for the disk.
    may_commit: bool,
}

impl BrokerHandle {
    pub(crate) fn new(shared: Arc<BrokerShared>, workers: Weak<Workers>) -> BrokerHandle {
        BrokerHandle { shared, workers, may_commit: true }
    }

    /// A handle for tasks that may run anywhere. With the original handle the calling task may commit inline and wait
    /// for the disk. tokio allows that on the workers of a multi-threaded runtime, but panics inside a `LocalSet`.
    pub fn without_inline_commits(&self) -> BrokerHandle {
        BrokerHandle { may_commit: false, ..self.clone() }
    }

    /// Opens a new connection.
    pub fn open(&self, namespace: Namespace) -> Result<BusConnection, Ended> {
        let shared = &self.shared;
        let conn = ConnId(shared.conns.fetch_add(1, Ordering::Relaxed));
        let BrokerSettings { outbox_soft_bytes, outbox_hard_bytes, .. } = shared.settings;
        let outbox = Outbox::new(outbox_soft_bytes, outbox_hard_bytes, shared.metrics.clone());
        BusConnection::open(conn, namespace, shared.clone(), self.workers.clone(), outbox, self.may_commit)
    }

    /// Sends a request and waits for the answer; also waits while the owner's queue is full. Dropping the future does
    /// not undo the request.
    pub async fn call(&self, by: Requester, request: Request) -> Result<Reply, Ended> {
        self.hand_over(by, request).await?.reply().await
    }

    /// Hands a request over, behind everything handed over before, and does not wait for the answer: for callers that
    /// want many requests under way in order.
    pub async fn hand_over(&self, by: Requester, request: Request) -> Result<BrokerCall, Ended> {
        let (answer, reply) = oneshot::channel();
        let units = units(&request);
        let checked = self.shared.schemas.check(&request).await;
        self.shared.inbox.reserve(units).await?;
        let command = std::iter::once((Command::Call { answer, by, request, checked }, units));
        // This caller may be no task of a runtime's thread, so it cannot gather; hence there is nothing to end.
        let may = EdgeMay { commit: self.may_commit, gather: false };
        let _ = jobs::hand_over(&self.shared.inbox, &self.workers, command, may)?;
        Ok(BrokerCall(reply))
    }

    /// Returns a writer of rows of the space `kv` below `prefix`. As many bytes of rows may wait for the disk as of
    /// requests, and never so many batches that the backlog is full of them: requests would wait for rows.
    pub fn row_writer(&self, prefix: &'static str) -> RowWriter {
        let BrokerShared { settings, durability, .. } = &*self.shared;
        let units_max = (settings.request_units_max as usize).min(settings.backlog_batches_max / 2);
        let bytes_max = units_max.saturating_mul(UNIT_BYTES);
        RowWriter::new(self.shared.clone(), prefix, *durability, bytes_max)
    }

    /// Returns a writer of whole batches.
    pub fn batch_writer(&self) -> BatchWriter {
        BatchWriter::new(self.shared.clone(), BATCHES_MAX)
    }

    /// Waits until the owner has ended, by a stop or by a panic.
    pub async fn ended(&self) {
        // The sender lives as long as this handle.
        let _ = self.shared.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// The engine's notes for logs and audits. Only the first call gets them; they end with the broker.
    pub fn take_notes(&self) -> Option<mpsc::Receiver<Note>> {
        self.shared.notes.take()
    }

    /// The clock that the engine's time comes from.
    pub fn clock(&self) -> &SystemClock {
        &self.shared.clock
    }

    pub fn health(&self) -> &Health {
        &self.shared.health
    }

    pub fn metrics(&self) -> ShellView {
        ShellView {
            uptime_ms: self.shared.clock.now().mono.0,
            clock_steps: self.shared.clock.steps(),
            reads_waiting: self.shared.reads.len() as u64,
            requests_waiting: self.shared.inbox.requests_waiting() as u64,
            backlog_batches: self.shared.backlog.batches() as u64,
            backlog_bytes: self.shared.backlog.bytes() as u64,
            ..metrics::view(&self.shared.metrics)
        }
    }

    /// Tells the engine that another server leads the store, for a shell that learns it before a commit does: a server
    /// without traffic commits nothing. Everything that waits is refused, and [`Health::failure_told`] follows.
    pub fn depose(&self, reason: String) {
        self.shared.health.set_deposed();
        self.shared.inbox.complete([Input::StorageFailed { reason }]);
    }

    /// Holds all deliveries back, or lets them go on: see [`Input::PauseDelivery`].
    pub fn pause_delivery(&self, is_paused: bool) {
        self.shared.inbox.complete([Input::PauseDelivery { is_paused }]);
    }

    /// For edges that drop a connection because it does not read.
    pub fn count_dropped_slow(&self) {
        self.shared.metrics.dropped_slow.fetch_add(1, Ordering::Relaxed);
    }

    /// For edges that read the store themselves and meet damaged events.
    pub fn count_damaged(&self, events: usize) {
        self.shared.metrics.damaged.fetch_add(events as u64, Ordering::Relaxed);
    }
}
