//! A connection of the loop that lives on another thread, such as a WebSocket.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_model::{OsId, OsMessage, Timestamp};
use millrace_router::{By, ConnId, Input};
use tokio::sync::mpsc;

use crate::conns::{Account, Line};
use crate::inbox::{Ended, LoopLink, Told};

/// Its way in. Dropping it is hanging up: what it asked for is carried out, nobody is told.
pub struct OsSender {
    pub(crate) conn: ConnId,
    pub(crate) link: LoopLink,
    pub(crate) account: Arc<Account>,
    /// Weak, because the end of the queue is how the loop says goodbye.
    pub(crate) lines: mpsc::WeakUnboundedSender<Line>,
    pub(crate) unsent_bytes_max: usize,
    pub(crate) goodbyes: mpsc::UnboundedSender<ConnId>,
}

/// Its way out: terminal outcomes, one line each.
pub struct OsReceiver {
    pub(crate) lines: mpsc::UnboundedReceiver<Line>,
    pub(crate) account: Arc<Account>,
}

impl OsSender {
    /// Waits while too many of its messages are unanswered or too much waits to be read by it.
    pub async fn send(&self, message: OsMessage) -> Result<(), Ended> {
        self.room().await;
        self.account.permits.fetch_sub(1, Ordering::Relaxed);
        self.link.tell(Told::Input(Input::Client { conn: self.conn, message })).await
    }

    /// The same, for one sender that looks before it reads on.
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

    /// An answer of the edge itself: it waits behind those of the loop that wait already, and counts like them.
    pub fn answer(&self, line: String) -> Result<(), Ended> {
        let lines = self.lines.upgrade().ok_or(Ended)?;
        self.account.unsent_bytes.fetch_add(line.len(), Ordering::Relaxed);
        lines.send(line).map_err(|_| Ended)
    }

    /// Who it is from now on.
    pub async fn identify(&self, by: By) -> Result<(), Ended> {
        self.link.tell(Told::Input(Input::Identify { conn: self.conn, by })).await
    }

    /// Whether everything it asked has been answered.
    pub fn is_answered(&self, permits_max: usize) -> bool {
        self.account.permits.load(Ordering::Relaxed) >= permits_max
    }

    pub fn stamp(&self) -> (OsId, Timestamp) {
        self.link.stamp()
    }
}

impl Drop for OsSender {
    fn drop(&mut self) {
        // At most one for each connection; if the loop is gone it needs none.
        let _ = self.goodbyes.send(self.conn);
    }
}

impl OsReceiver {
    /// The next line, without LF. `None`: the loop has said everything it will.
    pub async fn next(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    pub fn try_next(&mut self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Of what [`OsReceiver::next`] gave, this much was written out.
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
