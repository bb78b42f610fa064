//! Everything the shell tells the engine.

use std::sync::Arc;

use millrace_model::Mono;

use crate::error::HandlerError;
use crate::ids::{CallId, RunId};
use crate::operation::Operation;

/// A run to be started. Its first step waits in the ready queue like any other step.
#[derive(Debug)]
pub struct NewRun<G> {
    pub guest: G,
    /// The guest's effect table. Shared by all runs of one module.
    pub operations: Arc<[Operation]>,
    /// The run fails with [`crate::RunError::TimedOut`] if it has not ended by then.
    pub deadline: Option<Mono>,
}

/// Something that happened in the shell. Late inputs about runs that have ended are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<V> {
    /// The handler answered while it was being called: the run goes to the end of the ready queue at once, and its next
    /// step may be part of this tick.
    Answered { call: CallId, answer: Answer<V> },
    /// The handler answered later: an external completion, which waits for the next tick.
    Completed { call: CallId, answer: Answer<V> },
    /// The handler's answer is known now and takes effect at `at`: a sleep, for which no handler has to wait.
    AnswerAt { call: CallId, at: Mono, answer: Answer<V> },
    /// The handler of this call waits until `at`: then [`crate::Effect::Woke`] comes with the same token. After that
    /// the handler answers or sets further timers. The shell chooses the tokens.
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
    /// The handler returned a value that is not a continuation call.
    NotAContinuation,
}

/// The result of an input that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    Accepted,
    /// Too late: the run has ended, or the call already has its answer. Nothing changed.
    Dropped,
}
