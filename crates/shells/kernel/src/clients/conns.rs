//! The open connections of all kinds (Unix socket, WebSocket), and how answers reach them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use millrace_model::{Actor, Timestamp};
use millrace_router::ConnId;
use tokio::sync::{Notify, mpsc};

use crate::ndjson::LineWriter;

/// Where a connection's answers go.
#[derive(Clone)]
pub(crate) enum Out {
    /// A connection of the Unix socket, served on this thread.
    LineWriter(Rc<LineWriter>),
    /// A connection that another thread serves, such as a WebSocket.
    Remote(Rc<Remote>),
}

/// The loop's end of a connection on another thread.
pub(crate) struct Remote {
    pub(crate) lines: mpsc::UnboundedSender<Line>,
    pub(crate) account: Arc<Account>,
}

/// An answer as a line without its LF.
pub(crate) type Line = String;

/// How many messages a connection on another thread may still send, and how many bytes wait to be written to it. The
/// connection's reader stops at both bounds, which bounds the queue of lines; the channel itself is unbounded.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) permits: AtomicUsize,
    pub(crate) unsent_bytes: AtomicUsize,
    pub(crate) changed: Notify,
}

/// An open connection of the Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketConnection {
    pub number: u64,
    /// Whom the client has proved to be; `None` for the owner of the socket, who needs no token.
    pub agent: Option<Actor>,
    pub since: Timestamp,
    /// Messages of the client that are not answered yet.
    pub unanswered: usize,
    pub unread_bytes: usize,
    /// So much waits to be read that no more messages of the client are taken.
    pub is_congested: bool,
}

impl Remote {
    pub(crate) fn put(&self, line: Line) {
        self.account.unsent_bytes.fetch_add(line.len(), Ordering::Relaxed);
        // An error means that the connection is gone: its Close is on the way.
        let _ = self.lines.send(line);
    }

    fn release(&self, count: usize) {
        self.account.permits.fetch_add(count, Ordering::Relaxed);
        self.account.changed.notify_one();
    }
}

/// Shared by the loop's task and the tasks of the connections, all on one thread.
#[derive(Clone)]
pub(crate) struct Conns(Rc<ConnsState>);

struct ConnsState {
    /// The next connection number. Shared with other threads, so that a number is never used twice.
    next: Arc<AtomicU64>,
    open: RefCell<HashMap<ConnId, Out>>,
    /// Connections of the socket that have something to be written.
    dirty: RefCell<Vec<Rc<LineWriter>>>,
    closing: Cell<bool>,
    changed: Notify,
}

impl Conns {
    pub(crate) fn new(next: Arc<AtomicU64>) -> Conns {
        Conns(Rc::new(ConnsState {
            next,
            open: RefCell::default(),
            dirty: RefCell::default(),
            closing: Cell::new(false),
            changed: Notify::new(),
        }))
    }

    pub(crate) fn number(&self) -> ConnId {
        ConnId(self.0.next.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn add(&self, conn: ConnId, out: Out) {
        self.0.open.borrow_mut().insert(conn, out);
    }

    pub(crate) fn remove(&self, conn: ConnId) {
        self.0.open.borrow_mut().remove(&conn);
        self.0.changed.notify_one();
    }

    pub(crate) fn get(&self, conn: ConnId) -> Option<Out> {
        self.0.open.borrow().get(&conn).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.open.borrow().len()
    }

    /// The connections of the socket, by number.
    pub(crate) fn of_socket(&self, unsent_bytes_max: usize) -> Vec<SocketConnection> {
        let open = self.0.open.borrow();
        let mut found: Vec<SocketConnection> = open
            .iter()
            .filter_map(|(conn, out)| {
                let Out::LineWriter(writer) = out else { return None };
                let unread_bytes = writer.unsent();
                Some(SocketConnection {
                    number: conn.0,
                    agent: writer.agent(),
                    since: writer.since,
                    unanswered: writer.unanswered(),
                    unread_bytes,
                    is_congested: unread_bytes > unsent_bytes_max,
                })
            })
            .collect();
        found.sort_unstable_by_key(|connection| connection.number);
        found
    }

    /// Closes a connection of the socket. Returns false if there is no such connection.
    pub(crate) fn cut(&self, conn: ConnId) -> bool {
        match self.0.open.borrow().get(&conn) {
            Some(Out::LineWriter(writer)) => {
                writer.cut();
                true
            }
            _ => false,
        }
    }

    pub(crate) fn release(&self, conn: ConnId, count: u32) {
        match self.0.open.borrow().get(&conn) {
            Some(Out::LineWriter(writer)) => writer.release(count as usize),
            Some(Out::Remote(remote)) => remote.release(count as usize),
            None => {}
        }
    }

    /// Adds a connection of the socket to those that [`Conns::flush`] writes.
    pub(crate) fn mark(&self, writer: &Rc<LineWriter>) {
        if writer.mark() {
            self.0.dirty.borrow_mut().push(writer.clone());
        }
    }

    /// Writes as much as is possible without waiting; each connection's own task writes the rest.
    pub(crate) fn flush(&self) {
        let mut dirty = self.0.dirty.borrow_mut();
        for writer in dirty.drain(..) {
            writer.flush();
        }
    }

    /// Tells every connection to write what it has and then close.
    pub(crate) fn finish(&self) {
        self.0.closing.set(true);
        let open = self.0.open.borrow();
        for out in open.values() {
            if let Out::LineWriter(writer) = out {
                writer.finish();
            }
        }
        drop(open);
        // Connections on other threads read their answers from a channel: dropping the sender tells them to close.
        self.0.open.borrow_mut().retain(|_, out| matches!(out, Out::LineWriter(_)));
        self.0.changed.notify_one();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.0.closing.get()
    }

    pub(crate) async fn all_gone(&self) {
        while self.len() > 0 {
            self.0.changed.notified().await;
        }
    }
}
