//! The writing side of one connection, and its share of the bounds.

use std::cell::{Cell, RefCell};
use std::io;
use std::time::Duration;

use millrace_model::{Actor, Timestamp};
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::Notify;
use tokio::time::timeout;

/// A buffer that grew beyond this is shrunk once it is empty.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// Every request is answered, and the answers are written.
    Finished,
    /// The client hung up.
    Gone,
    /// The client read nothing for too long.
    Slow,
    /// The client had to authenticate and sent nothing for too long.
    Silent,
}

pub(crate) struct LineWriter {
    /// When the connection was opened.
    pub(crate) since: Timestamp,
    /// Whom the client has proved to be.
    agent: RefCell<Option<Actor>>,
    half: OwnedWriteHalf,
    out: RefCell<Out>,
    /// In the list of connections to be flushed.
    marked: Cell<bool>,
    /// The socket's buffer is full: the connection's own task continues when there is room.
    blocked: Cell<bool>,
    failed: Cell<bool>,
    /// The client sends nothing more: the connection ends once everything is answered.
    reads_no_more: Cell<bool>,
    /// Write the rest and close.
    finishing: Cell<bool>,
    writer: Notify,
    permits: Cell<usize>,
    permits_max: usize,
    unsent_bytes_max: usize,
    reader_waits: Cell<bool>,
    reader: Notify,
}

#[derive(Default)]
struct Out {
    bytes: Vec<u8>,
    sent: usize,
}

impl LineWriter {
    pub(super) fn new(
        half: OwnedWriteHalf,
        permits_max: usize,
        unsent_bytes_max: usize,
        since: Timestamp,
    ) -> LineWriter {
        LineWriter {
            since,
            agent: RefCell::default(),
            half,
            out: RefCell::default(),
            marked: Cell::new(false),
            blocked: Cell::new(false),
            failed: Cell::new(false),
            reads_no_more: Cell::new(false),
            finishing: Cell::new(false),
            writer: Notify::new(),
            permits: Cell::new(permits_max),
            permits_max,
            unsent_bytes_max,
            reader_waits: Cell::new(false),
            reader: Notify::new(),
        }
    }

    /// Adds a line. The caller also marks the connection ([`crate::clients::conns::Conns::mark`]).
    pub(crate) fn put(&self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.out.borrow_mut().bytes);
    }

    pub(crate) fn agent(&self) -> Option<Actor> {
        self.agent.borrow().clone()
    }

    pub(super) fn set_agent(&self, agent: Option<Actor>) {
        *self.agent.borrow_mut() = agent;
    }

    /// Messages of the client that are not answered yet.
    pub(crate) fn unanswered(&self) -> usize {
        self.permits_max.saturating_sub(self.permits.get())
    }

    pub(crate) fn unsent(&self) -> usize {
        let out = self.out.borrow();
        out.bytes.len() - out.sent
    }

    /// Marks the connection for a flush. Returns whether it was not marked before.
    pub(crate) fn mark(&self) -> bool {
        !self.marked.replace(true)
    }

    /// Writes as much as is possible without waiting.
    pub(crate) fn flush(&self) {
        self.marked.set(false);
        if self.blocked.get() || self.failed.get() {
            return;
        }
        let out = &mut *self.out.borrow_mut();
        while out.sent < out.bytes.len() {
            match self.half.try_write(&out.bytes[out.sent..]) {
                Ok(bytes) => out.sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked.set(true);
                    self.writer.notify_one();
                    break;
                }
                Err(_) => {
                    self.failed.set(true);
                    self.writer.notify_one();
                    break;
                }
            }
        }
        out.forget_sent();
        if out.bytes.len() - out.sent <= self.unsent_bytes_max {
            self.wake_reader();
        }
    }

    pub(crate) fn release(&self, count: usize) {
        self.permits.set(self.permits.get().saturating_add(count).min(self.permits_max));
        self.wake_reader();
        if self.reads_no_more.get() && self.permits.get() == self.permits_max {
            self.writer.notify_one();
        }
    }

    pub(crate) fn finish(&self) {
        self.finishing.set(true);
        self.writer.notify_one();
    }

    /// Closes at once: an operator must be able to disconnect a client that reads nothing.
    pub(crate) fn cut(&self) {
        self.failed.set(true);
        self.writer.notify_one();
    }

    pub(super) fn reads_no_more(&self) {
        self.reads_no_more.set(true);
        self.writer.notify_one();
    }

    fn wake_reader(&self) {
        if self.reader_waits.replace(false) {
            self.reader.notify_one();
        }
    }

    /// Waits until another message may be handed to the loop, and counts it.
    pub(super) async fn permit(&self) {
        while self.permits.get() == 0 || self.unsent() > self.unsent_bytes_max {
            self.reader_waits.set(true);
            self.reader.notified().await;
        }
        self.permits.set(self.permits.get() - 1);
    }

    /// Waits until the client has read enough of what was sent to it.
    pub(super) async fn room(&self) {
        while self.unsent() > self.unsent_bytes_max {
            self.reader_waits.set(true);
            self.reader.notified().await;
        }
    }

    /// Writes what [`LineWriter::flush`] could not, until the connection has ended.
    pub(super) async fn run(&self, slow_reader: Duration) -> ConnectionEnd {
        loop {
            if self.failed.get() {
                return ConnectionEnd::Gone;
            }
            if self.blocked.get() {
                match timeout(slow_reader, self.half.writable()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return ConnectionEnd::Gone,
                    Err(_) => return ConnectionEnd::Slow,
                }
                self.blocked.set(false);
                self.flush();
                continue;
            }
            let answered = self.reads_no_more.get() && self.permits.get() == self.permits_max;
            if answered || self.finishing.get() {
                if self.unsent() == 0 {
                    return ConnectionEnd::Finished;
                }
                self.flush();
                continue;
            }
            self.writer.notified().await;
        }
    }
}

impl Out {
    fn forget_sent(&mut self) {
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES_MAX);
            self.sent = 0;
        } else if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }
}
