//! Carries out the effects that the engine decided on.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use millrace_model::{JsonText, Namespace, Now, OsFault, OsId, OsMessage, home};
use millrace_router::{CapabilityId, ConnId, Effect, Input, Receipt, Router, Settled, TraceRecord};
use millrace_wire::os::{OsRefusal, encode};
use tokio::sync::{mpsc, oneshot};

use crate::capabilities::change::Actors;
use crate::capabilities::port::Delivery;
use crate::clients::conns::{Conns, Out, Remote};
use crate::clients::sender_check::SenderCheck;
use crate::kernel_thread::commits::Commits;
use crate::kernel_thread::counts::AtomicCounts;
use crate::kernel_thread::inbox::KernelCommand;
use crate::kernel_thread::notes::NoteLog;
use crate::settings::KernelSettings;
use crate::syscalls;

/// The engine and everything that carries out its effects. Only the loop's task has it.
pub(crate) struct Shell {
    pub(crate) settings: Arc<KernelSettings>,
    pub(crate) router: Router,
    pub(crate) actors: Actors,
    pub(crate) conns: Conns,
    pub(crate) commits: Commits,
    pub(crate) counts: Arc<AtomicCounts>,
    /// Where records of the trace are sent.
    records: Option<mpsc::Sender<(Namespace, JsonText)>>,
    pub(crate) sender_check: SenderCheck,
    /// Handlers that wait for the outcome of a request they made, by its id.
    waits: HashMap<(CapabilityId, OsId), oneshot::Sender<Arc<OsMessage>>>,
    settles: HashMap<Receipt, oneshot::Sender<Settled>>,
    receipts: u64,
    pub(crate) stopped: bool,
    log: NoteLog,
    /// A buffer for encoding lines that are measured or sent to other threads.
    scratch: Vec<u8>,
    /// Empty between calls; keeps its capacity.
    effects: Vec<Effect>,
}

impl Shell {
    pub(crate) fn new(
        settings: Arc<KernelSettings>,
        router: Router,
        actors: Actors,
        conns: Conns,
        commits: Commits,
        counts: Arc<AtomicCounts>,
        records: Option<mpsc::Sender<(Namespace, JsonText)>>,
    ) -> Shell {
        Shell {
            settings,
            router,
            actors,
            conns,
            commits,
            counts,
            records,
            sender_check: SenderCheck::default(),
            waits: HashMap::new(),
            settles: HashMap::new(),
            receipts: 0,
            stopped: false,
            log: NoteLog::default(),
            scratch: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Handles a command of another thread that concerns the engine.
    pub(crate) fn on_command(&mut self, now: Now, command: KernelCommand) {
        match command {
            KernelCommand::Input(input) => self.router.handle(now, input),
            KernelCommand::Asks { from, during, message, outcome } => {
                self.waits.insert((from, message.metadata.id.clone()), outcome);
                let input = Input::Emit { from, during: Some(during), message, wait: true, trusted: true };
                self.router.handle(now, input);
            }
            KernelCommand::Bus { to, message, settled } => {
                self.receipts += 1;
                let receipt = Receipt(self.receipts);
                self.settles.insert(receipt, settled);
                self.router.handle(now, Input::BusEvent { to, receipt, message });
            }
            KernelCommand::Open { conn, by, lines, account } => {
                if !self.conns.is_closing() {
                    self.conns.add(conn, Out::Remote(Rc::new(Remote { lines, account })));
                    self.router.handle(now, Input::Open { conn, by });
                }
            }
            KernelCommand::Change { gone, come, done } => {
                let changed = self.actors.change(&mut self.router, now, &gone, come);
                // An error means that the caller no longer waits: the change is made all the same.
                let _ = done.send(changed);
            }
            KernelCommand::WithRouter(read) => read(&self.router),
            KernelCommand::Capabilities { found } => {
                // An error means that the caller no longer waits: fine, here and below.
                let _ = found.send(self.actors.views(&self.router));
            }
            KernelCommand::SocketConnections { found } => {
                let _ = found.send(self.conns.of_socket(self.settings.unsent_bytes_max));
            }
            KernelCommand::Disconnect { conn, done } => {
                let _ = done.send(self.conns.cut(conn));
            }
            // The loop's task (`run.rs`) handles these before it calls this.
            KernelCommand::Listen { .. } | KernelCommand::Begin | KernelCommand::Stop { .. } => {}
        }
    }

    /// A connection on another thread has been closed.
    pub(crate) fn left(&mut self, now: Now, conn: ConnId) {
        self.conns.remove(conn);
        self.router.handle(now, Input::Close { conn });
    }

    /// Carries out every effect decided so far.
    pub(crate) fn carry_out(&mut self, now: Now) {
        // An answer that is too long leads to a fault, and that to another effect. Two rounds are enough, because a
        // fault is always short.
        for _ in 0..2 {
            let mut effects = std::mem::take(&mut self.effects);
            effects.extend(self.router.drain());
            for effect in effects.drain(..) {
                self.carry(now, effect);
            }
            self.effects = effects;
        }
    }

    fn carry(&mut self, now: Now, effect: Effect) {
        match effect {
            Effect::Post { to, delivery, message, by, owed } => match self.actors.mailbox(to) {
                Some(mailbox) => mailbox.post(Delivery { id: delivery, message, by, owed, suspect: None }),
                None if owed => self.router.handle(now, Input::GivenBack { from: to, delivery }),
                None => {
                    let fault = OsFault::new(500, "the actor of this capability is gone");
                    self.router.handle(now, Input::Done { from: to, delivery, result: Err(fault) });
                }
            },
            Effect::Outcome { to, message } => self.outcome(to, message),
            Effect::Answer { conn, message } => self.answer(now, conn, &message),
            Effect::Release { conn, count } => self.conns.release(conn, count),
            Effect::Commit { token, ops } => self.commits.put(token, ops),
            Effect::Settle { receipt, settled } => {
                if let Some(waiting) = self.settles.remove(&receipt) {
                    // An error means that the feed has ended: the event is delivered again when its lease expires.
                    let _ = waiting.send(settled);
                }
            }
            Effect::CheckSender { timer, by, message } => {
                let trusted = self.sender_check.answer(timer, by, &message);
                self.router.handle(now, trusted);
            }
            Effect::Retired { capability } => self.actors.retired(capability),
            Effect::Trace(record) => self.keep(&record),
            Effect::Note(note) => self.log.note(now.mono, &note),
            Effect::Stopped => self.stopped = true,
        }
    }

    /// Sends a record of the trace to its receiver. Tracing must not delay what it traces: a record that finds no room
    /// is dropped and counted.
    fn keep(&mut self, record: &TraceRecord) {
        let Some(records) = &self.records else { return };
        let shown = JsonText::from_stored(syscalls::shown(record).to_string().into());
        if records.try_send((home(&record.namespaces), shown)).is_err() {
            self.counts.record_lost();
        }
    }

    /// Gives an outcome to the handler that waits for it, or else to the actor's queue of outcomes.
    fn outcome(&mut self, to: CapabilityId, message: Arc<OsMessage>) {
        let waiting = message.metadata.causation.clone().and_then(|cause| self.waits.remove(&(to, cause)));
        match (waiting, self.actors.mailbox(to)) {
            // An error means that the handler no longer waits: fine.
            (Some(waiting), _) => drop(waiting.send(message)),
            (None, Some(mailbox)) => mailbox.outcome(message),
            (None, None) => {}
        }
    }

    fn answer(&mut self, now: Now, conn: ConnId, message: &OsMessage) {
        let Some(out) = self.conns.get(conn) else { return };
        let line_max = self.settings.line_bytes_max;
        // Encoding to measure the exact length is only needed for messages that may be too long.
        let instead = (message.bytes() > line_max).then(|| self.too_long(now, message)).flatten();
        let message = instead.as_ref().unwrap_or(message);
        match out {
            Out::LineWriter(writer) => {
                writer.put(|out| encode(message, out));
                self.conns.mark(&writer);
            }
            Out::Remote(remote) => {
                self.scratch.clear();
                encode(message, &mut self.scratch);
                let line = self.scratch.strip_suffix(b"\n").unwrap_or(&self.scratch);
                remote.put(String::from_utf8_lossy(line).into_owned());
            }
        }
    }

    /// Returns the error to send instead if the line is longer than a client accepts. The error is as terminal as the
    /// answer was.
    fn too_long(&mut self, now: Now, message: &OsMessage) -> Option<OsMessage> {
        self.scratch.clear();
        encode(message, &mut self.scratch);
        let line_max = self.settings.line_bytes_max;
        if self.scratch.len() <= line_max + 1 {
            return None;
        }
        self.counts.too_long_out();
        let metadata = &message.metadata;
        let refusal = OsRefusal {
            ty: Some(message.ty.clone()),
            causation: metadata.causation.clone(),
            correlation: metadata.correlation.clone(),
            ..OsRefusal::too_long(line_max)
        };
        let said = format!("its answer {} has {} bytes", message.ty, self.scratch.len() - 1);
        if let Some(from) = self.author(message) {
            let fault = OsFault::new(413, format!("{said}: {}", refusal.message));
            self.router.handle(now, Input::BadEmit { from, during: None, fault });
        }
        Some(refusal.into_message(metadata.id.clone(), metadata.timestamp))
    }

    /// The capability that handles requests of this type.
    fn author(&self, answer: &OsMessage) -> Option<CapabilityId> {
        let handles = |manifest: &millrace_router::Manifest| {
            manifest.inbound.iter().any(|branch| branch.kind.is_request() && branch.ty == answer.ty)
        };
        self.router.directory().find(|(_, manifest)| handles(manifest)).map(|(id, _)| id)
    }
}
