//! A connection to the loop that another thread serves, such as a WebSocket.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_model::{OsId, OsMessage, Requester, Timestamp};
use millrace_router::{ConnId, Input};
use tokio::sync::mpsc;

use crate::clients::conns::{Account, Line};
use crate::kernel_thread::inbox::{KernelCommand, KernelEnded, KernelSender};

/// The sending half of a connection. Dropping it closes the connection: its requests are still carried out, but nobody
/// gets the answers.
pub struct OsSender {
    pub(crate) conn: ConnId,
    pub(crate) kernel: KernelSender,
    pub(crate) account: Arc<Account>,
    /// Weak, because the loop closes a connection by dropping the last sender of this channel.
    pub(crate) lines: mpsc::WeakUnboundedSender<Line>,
    pub(crate) unsent_bytes_max: usize,
    pub(crate) permits_max: usize,
    pub(crate) goodbyes: mpsc::UnboundedSender<ConnId>,
}

/// The receiving half of a connection: terminal outcomes, each as one line.
pub struct OsReceiver {
    pub(crate) lines: mpsc::UnboundedReceiver<Line>,
    pub(crate) account: Arc<Account>,
}

impl OsSender {
    /// Sends a message. Waits while too many messages of this connection are unanswered or too many bytes wait to be
    /// written to it.
    pub async fn send(&self, message: OsMessage) -> Result<(), KernelEnded> {
        self.room().await;
        self.account.permits.fetch_sub(1, Ordering::Relaxed);
        self.kernel.send(KernelCommand::Input(Input::Client { conn: self.conn, message })).await
    }

    /// Waits like [`OsSender::send`] without sending: for a caller that checks before it reads on.
    pub async fn room(&self) {
        loop {
            let changed = self.account.changed.notified();
            let unsent = self.account.unsent_bytes.load(Ordering::Relaxed);
            if self.account.permits.load(Ordering::Relaxed) > 0 && unsent <= self.unsent_bytes_max {
                return;
            }
            changed.await;
        }
    }

    /// Sends an answer of the edge itself, which is queued behind the loop's answers and counts like them.
    pub fn answer(&self, line: String) -> Result<(), KernelEnded> {
        let lines = self.lines.upgrade().ok_or(KernelEnded)?;
        self.account.unsent_bytes.fetch_add(line.len(), Ordering::Relaxed);
        lines.send(line).map_err(|_| KernelEnded)
    }

    /// Sets the identity of this connection from now on.
    pub async fn identify(&self, by: Requester) -> Result<(), KernelEnded> {
        self.kernel.send(KernelCommand::Input(Input::Identify { conn: self.conn, by })).await
    }

    /// Whether every request of this connection has been answered.
    pub fn is_answered(&self, permits_max: usize) -> bool {
        self.account.permits.load(Ordering::Relaxed) >= permits_max
    }

    pub fn stamp(&self) -> (OsId, Timestamp) {
        self.kernel.stamp()
    }

    /// The number of the connection, unique among those of the loop.
    pub fn number(&self) -> u64 {
        self.conn.0
    }

    /// Returns a handle that tells how much is unanswered and unread.
    pub fn backlog(&self) -> OsBacklog {
        OsBacklog {
            account: self.account.clone(),
            permits_max: self.permits_max,
            unsent_bytes_max: self.unsent_bytes_max,
        }
    }
}

/// How much of a connection is unanswered and unread.
#[derive(Clone, Debug)]
pub struct OsBacklog {
    account: Arc<Account>,
    permits_max: usize,
    unsent_bytes_max: usize,
}

impl OsBacklog {
    /// Messages of the client that are not answered yet.
    pub fn unanswered(&self) -> usize {
        self.permits_max.saturating_sub(self.account.permits.load(Ordering::Relaxed))
    }

    /// Bytes of answers that the client has not read.
    pub fn unread_bytes(&self) -> usize {
        self.account.unsent_bytes.load(Ordering::Relaxed)
    }

    /// Whether so much is unread that no more messages of the client are taken.
    pub fn is_congested(&self) -> bool {
        self.unread_bytes() > self.unsent_bytes_max
    }
}

impl Drop for OsSender {
    fn drop(&mut self) {
        // The channel is unbounded, but gets at most one entry for each connection. An error means that the loop has
        // ended.
        let _ = self.goodbyes.send(self.conn);
    }
}

impl OsReceiver {
    /// The next line, without LF. `None`: the loop will send nothing more.
    pub async fn next(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    pub fn try_next(&mut self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Reports that so many bytes of what [`OsReceiver::next`] returned have been written out.
    pub fn written(&self, bytes: usize) {
        self.account.unsent_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.account.changed.notify_one();
    }
}

impl fmt::Debug for OsSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OsSender").field("conn", &self.conn).finish_non_exhaustive()
    }
}

impl fmt::Debug for OsReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OsReceiver").finish_non_exhaustive()
    }
}
