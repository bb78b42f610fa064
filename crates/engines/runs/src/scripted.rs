//! The scripted guest: a program given as data, for tests, simulation and benchmarks.

use std::fmt::Debug;
use std::sync::Arc;

use thiserror::Error;

use crate::guest::{Guest, GuestStep};

/// Executes a script, one line for each continuation step.
#[derive(Clone, Debug)]
pub struct ScriptedGuest<V> {
    /// Identifies the guest in a shared [`GuestLog`].
    name: u64,
    lines: Arc<[ScriptLine<V>]>,
    next: usize,
}

/// A line of a script: what the guest does in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptLine<V> {
    Request {
        op: u32,
        args: Vec<V>,
    },
    Done(V),
    /// Returns the reply to the previous request.
    DoneWithReply,
    Fail(String),
    /// Continues with the line at this position, in the same step. That line must not be another `Goto`.
    Goto(usize),
}

/// Why a scripted guest failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScriptFault {
    #[error("{0}")]
    Scripted(String),
    #[error("the script has no line {line} that makes a step")]
    NoLine { line: usize },
    #[error("line {line} of the script returns a reply, but no request stands before it")]
    NoReply { line: usize },
}

/// The host that scripted guests share: a log of how they were called, in order.
#[derive(Clone, Debug)]
pub struct GuestLog<V> {
    events: Vec<GuestEvent<V>>,
    events_max: usize,
    /// How many guests were released.
    pub released: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestEvent<V> {
    Started { name: u64 },
    Resumed { name: u64, reply: V },
    Released { name: u64 },
}

impl<V> ScriptedGuest<V> {
    pub fn new(name: u64, lines: impl Into<Arc<[ScriptLine<V>]>>) -> ScriptedGuest<V> {
        ScriptedGuest { name, lines: lines.into(), next: 0 }
    }

    pub fn name(&self) -> u64 {
        self.name
    }
}

impl<V> GuestLog<V> {
    /// Keeps the first `events_max` events and drops later ones. Benchmarks use 0.
    pub fn new(events_max: usize) -> GuestLog<V> {
        GuestLog { events: Vec::new(), events_max, released: 0 }
    }

    pub fn events(&self) -> &[GuestEvent<V>] {
        &self.events
    }

    fn keep(&mut self, event: impl FnOnce() -> GuestEvent<V>) {
        if self.events.len() < self.events_max {
            self.events.push(event());
        }
    }
}

impl<V: Clone> ScriptedGuest<V> {
    fn follow(&mut self, reply: Option<V>) -> GuestStep<V, ScriptFault> {
        let mut line = self.next;
        if let Some(ScriptLine::Goto(target)) = self.lines.get(line) {
            line = *target;
        }
        self.next = line + 1;
        match self.lines.get(line) {
            Some(ScriptLine::Request { op, args }) => GuestStep::Request { op: *op, args: args.clone() },
            Some(ScriptLine::Done(value)) => GuestStep::Done(value.clone()),
            Some(ScriptLine::DoneWithReply) => match reply {
                Some(reply) => GuestStep::Done(reply),
                None => GuestStep::Failed(ScriptFault::NoReply { line }),
            },
            Some(ScriptLine::Fail(message)) => GuestStep::Failed(ScriptFault::Scripted(message.clone())),
            Some(ScriptLine::Goto(_)) | None => GuestStep::Failed(ScriptFault::NoLine { line }),
        }
    }
}

impl<V: Clone + Debug> Guest for ScriptedGuest<V> {
    type Value = V;
    type Fault = ScriptFault;
    type Host = GuestLog<V>;

    fn start(&mut self, log: &mut GuestLog<V>) -> GuestStep<V, ScriptFault> {
        log.keep(|| GuestEvent::Started { name: self.name });
        self.follow(None)
    }

    fn resume(&mut self, log: &mut GuestLog<V>, reply: V) -> GuestStep<V, ScriptFault> {
        log.keep(|| GuestEvent::Resumed { name: self.name, reply: reply.clone() });
        self.follow(Some(reply))
    }

    fn release(self, log: &mut GuestLog<V>) {
        log.keep(|| GuestEvent::Released { name: self.name });
        log.released += 1;
    }
}
