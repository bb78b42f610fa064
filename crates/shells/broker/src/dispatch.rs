//! Carries out effects: sends batches to the writer, reads to the readers, items to outboxes, answers to callers.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_bus::{ConnId, Effect, Reply, ReplyTo};
use millrace_model::Batch;
use millrace_store::{ReadLimit, Retention};
use tokio::sync::oneshot;

use crate::backlog::{Backlog, BatchOrigin};
use crate::notes::Notes;
use crate::outbox::{Item, Outbox, Pressure};
use crate::readers::{ReadJob, ReadQueue};
use crate::schemas::Schemas;

/// Collects the effects of a turn and hands them over once at its end.
#[derive(Debug)]
pub(crate) struct Dispatch {
    backlog: Arc<Backlog>,
    jobs: Arc<ReadQueue>,
    notes: Notes,
    schemas: Arc<Schemas>,
    conns: HashMap<ConnId, Conn>,
    calls: HashMap<u64, oneshot::Sender<Reply>>,
    next_call: u64,
    stopped: Vec<oneshot::Sender<()>>,
    has_stopped: bool,
    commits: Vec<(BatchOrigin, Batch)>,
    reads: Vec<ReadJob>,
    /// Connections with staged items.
    touched: Vec<ConnId>,
}

#[derive(Debug)]
struct Conn {
    outbox: Arc<Outbox>,
    staged: Vec<Item>,
}

/// Found while handing over; the engine must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feedback {
    Congested(ConnId),
    Overrun(ConnId),
}

impl Dispatch {
    pub(crate) fn new(
        backlog: Arc<Backlog>,
        jobs: Arc<ReadQueue>,
        notes: Notes,
        schemas: Arc<Schemas>,
    ) -> Dispatch {
        Dispatch {
            backlog,
            jobs,
            notes,
            schemas,
            conns: HashMap::new(),
            calls: HashMap::new(),
            next_call: 0,
            stopped: Vec::new(),
            has_stopped: false,
            commits: Vec::new(),
            reads: Vec::new(),
            touched: Vec::new(),
        }
    }

    pub(crate) fn open(&mut self, conn: ConnId, outbox: Arc<Outbox>) {
        self.conns.insert(conn, Conn { outbox, staged: Vec::new() });
    }

    /// Returns false if the connection was dropped before.
    pub(crate) fn close(&mut self, conn: ConnId) -> bool {
        self.conns.remove(&conn).inspect(|conn| conn.outbox.close()).is_some()
    }

    /// Registers a call and returns where the engine is to send its answer.
    pub(crate) fn expect(&mut self, answer: oneshot::Sender<Reply>) -> ReplyTo {
        self.next_call += 1;
        self.calls.insert(self.next_call, answer);
        ReplyTo::Call { call: self.next_call }
    }

    pub(crate) fn expect_stop(&mut self, stopped: oneshot::Sender<()>) {
        self.stopped.push(stopped);
    }

    /// The engine has stopped, or cannot finish because the store failed. Callers of the stop are told at the end of
    /// the turn, when the last answers are in their outboxes.
    pub(crate) fn set_stopped(&mut self) {
        self.has_stopped = true;
    }

    /// Whether a connection that reported relief is not congested again already.
    pub(crate) fn relieved(&self, conn: ConnId) -> bool {
        self.conns.get(&conn).is_some_and(|conn| !conn.outbox.congested())
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Commit { token, batch } => self.commits.push((BatchOrigin::Engine(token), batch)),
            Effect::Read { token, stream, from, events_max, bytes_max } => {
                self.reads.push(ReadJob::Read {
                    token,
                    stream,
                    from,
                    limit: ReadLimit { events_max, bytes_max },
                });
            }
            Effect::Seek { token, streams, ts } => self.reads.push(ReadJob::Seek { token, streams, ts }),
            Effect::FindStart { token, stream, older_than, bytes_max } => {
                let rule = Retention { older_than, bytes_max };
                self.reads.push(ReadJob::FindStart { token, stream, rule });
            }
            Effect::ScanDue { token, waits, rows_max } => {
                self.reads.push(ReadJob::ScanDue { token, waits, rows_max });
            }
            Effect::ReadTopic { token, topic } => self.reads.push(ReadJob::ReadTopic { token, topic }),
            Effect::CheckRetained { token, check } => {
                self.reads.push(ReadJob::CheckRetained { token, check });
            }
            Effect::SchemaInForce { topic, schema } => self.schemas.set(topic, schema),
            Effect::Reply { to, reply } => self.reply(to, reply),
            Effect::Deliver { conn, group, event, attempts } => {
                self.stage(conn, Item::Delivery { group, event, attempts });
            }
            Effect::Notice { conn, error, group } => self.stage(conn, Item::Notice { error, group }),
            Effect::Note(note) => self.notes.push(note),
            Effect::Stopped => self.set_stopped(),
        }
    }

    /// Hands everything over, to the writer first, because its sync takes longest.
    pub(crate) fn hand_over(&mut self, feedback: &mut Vec<Feedback>) {
        if self.backlog.push(&mut self.commits).is_err() {
            // The broker has ended or the store has failed; the engine has been told of a failure.
            self.commits.clear();
        }
        if !self.reads.is_empty() {
            self.jobs.push_all(self.reads.drain(..));
        }
        for id in self.touched.drain(..) {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            match conn.outbox.fill(&mut conn.staged) {
                Pressure::Fine => {}
                Pressure::Rising => feedback.push(Feedback::Congested(id)),
                Pressure::Overrun => feedback.push(Feedback::Overrun(id)),
            }
        }
        if self.has_stopped {
            for stopped in self.stopped.drain(..) {
                // An error means that the caller of the stop no longer waits.
                let _ = stopped.send(());
            }
        }
    }

    fn reply(&mut self, to: ReplyTo, reply: Reply) {
        match to {
            ReplyTo::Conn { conn, request } => self.stage(conn, Item::Reply { request, reply }),
            ReplyTo::Call { call } => {
                if let Some(answer) = self.calls.remove(&call) {
                    // An error means that the caller has given up.
                    let _ = answer.send(reply);
                }
            }
            ReplyTo::Nobody => {}
        }
    }

    fn stage(&mut self, id: ConnId, item: Item) {
        if let Some(conn) = self.conns.get_mut(&id) {
            if conn.staged.is_empty() {
                self.touched.push(id);
            }
            conn.staged.push(item);
        }
    }
}

impl Drop for Dispatch {
    /// The owner has ended, perhaps by a panic: connections must not wait for it.
    fn drop(&mut self) {
        for conn in self.conns.values() {
            conn.outbox.close();
        }
    }
}
