//! The state of one run.

use std::sync::Arc;

use crate::guest::Guest;
use crate::ids::{CallId, RunId};
use crate::input::Answer;
use crate::operation::Operation;
use crate::timers::TimerKey;

#[derive(Debug)]
pub(crate) struct Run<G: Guest> {
    pub(crate) id: RunId,
    pub(crate) guest: G,
    pub(crate) operations: Arc<[Operation]>,
    /// Steps begun.
    pub(crate) step: u64,
    pub(crate) state: RunState<G::Value>,
    /// Wake-ups that the handler of the current call waits for.
    pub(crate) wakes: Vec<TimerKey>,
    pub(crate) deadline: Option<TimerKey>,
}

#[derive(Debug)]
pub(crate) enum RunState<V> {
    /// In the ready queue, for its first step.
    Starting,
    /// In the ready queue: the answer to its request is to be applied.
    Ready { op: u32, answer: Answer<V> },
    /// The handler is working.
    Waiting { op: u32 },
    /// In the external queue, or in the timer queue: the answer is known and does not count yet.
    Answered { op: u32, answer: Answer<V>, timer: Option<TimerKey> },
    /// The guest is being called. Never seen between two calls of the engine.
    Stepping,
}

impl<G: Guest> Run<G> {
    pub(crate) fn call(&self) -> CallId {
        CallId { run: self.id, step: self.step }
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state, RunState::Starting | RunState::Ready { .. })
    }
}
