//! What the engine is told by its shell.

use std::sync::Arc;

use millrace_model::Mono;

use crate::error::HandlerError;
use crate::ids::{CallId, RunId};
use crate::operation::Operation;

/// A run to be started. Its first step waits in the ready queue like any other.
#[derive(Debug)]
pub struct Start<G> {
    pub guest: G,
    /// The guest's effect table. Shared by all runs of one module.
    pub operations: Arc<[Operation]>,
    /// The run fails with [`crate::RunError::TimedOut`] if it has not ended by then.
    pub deadline: Option<Mono>,
}

/// A fact for the engine. Late inputs about runs that have ended are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<V> {
    /// The handler answered while it was called: the run goes straight to the end of the ready queue, and its next step
    /// may be part of this tick.
    Answered { call: CallId, answer: Answer<V> },
    /// The handler answered later: an external completion, which waits for the next tick.
    Completed { call: CallId, answer: Answer<V> },
    /// The handler's answer is known now and counts at `at`: a sleep without a waiting handler.
    AnswerAt { call: CallId, at: Mono, answer: Answer<V> },
    /// The handler of this call waits for a moment: [`crate::Effect::Woke`] with the same token tells it. The handler
    /// answers after that, or sets further timers. Tokens are the shell's.
    WakeAt { call: CallId, at: Mono, token: u64 },
    /// End the run now, without another step.
    Cancel { run: RunId, reason: Option<V> },
}

/// The continuation call that a handler returned for an effect request, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<V> {
    Resume(V),
    Tail(V),
    /// The run completes with this value; the guest is not resumed.
    End(V),
    /// The handler failed: threw, was rejected, panicked.
    Failed(HandlerError),
    /// No handler is registered for the operation.
    Unhandled,
    /// The handler returned something that is no continuation call.
    NotAContinuation,
}

/// What became of an input that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    Accepted,
    /// Too late: the run has ended, or the call has its answer already. Nothing changed.
    Dropped,
}
