//! The state of one run.

use std::sync::Arc;

use crate::guest::Guest;
use crate::ids::{CallId, RunId};
use crate::input::Answer;
use crate::operation::Operation;
use crate::timers::TimerKey;

#[derive(Debug)]
pub(crate) struct EffectRun<G: Guest> {
    pub(crate) id: RunId,
    pub(crate) guest: G,
    pub(crate) operations: Arc<[Operation]>,
    /// Effect requests made so far: the number of the current call.
    pub(crate) step: u64,
    pub(crate) state: RunState<G::Value>,
    /// Wake-ups that the handler of the current call waits for.
    pub(crate) wakes: Vec<TimerKey>,
    pub(crate) deadline: Option<TimerKey>,
}

#[derive(Debug)]
pub(crate) enum RunState<V> {
    /// In the ready queue, for the first step.
    Starting,
    /// In the ready queue: the next step applies the answer to the run's request.
    Ready { op: u32, answer: Answer<V> },
    /// The handler is working on the run's request.
    Waiting { op: u32 },
    /// The answer is known but not applied yet: it waits in the external queue, or in the timer queue if `timer` is
    /// set.
    Answered { op: u32, answer: Answer<V>, timer: Option<TimerKey> },
    /// The guest is being called. Never visible between two calls of the engine.
    Stepping,
}

impl<G: Guest> EffectRun<G> {
    pub(crate) fn call(&self) -> CallId {
        CallId { run: self.id, step: self.step }
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state, RunState::Starting | RunState::Ready { .. })
    }
}
