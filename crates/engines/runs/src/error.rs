//! Reasons why a run failed, or why a start or an input was refused.

use std::sync::Arc;

use thiserror::Error;

use crate::operation::ResumeKind;

/// Why a run failed. The texts are those of wire generation A; a host of generation B words the same variants
/// differently.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RunError<F> {
    #[error("Unhandled effect {label} ({kind})")]
    Unhandled { label: Arc<str>, kind: ResumeKind },
    #[error("Resume effect {label} cannot return tail(...) (return resume(...) or end(...))")]
    ResumeGotTail { label: Arc<str> },
    #[error("Tail effect {label} must return tail(...)")]
    TailGotOther { label: Arc<str> },
    #[error(
        "Effect handler for {label} must return a continuation call (return resume(...), tail(...), or end(...))"
    )]
    NotAContinuation { label: Arc<str> },
    #[error("{error}")]
    Handler { label: Arc<str>, error: HandlerError },
    /// A trap, a protocol mismatch or a limit of the guest.
    #[error("{0}")]
    Guest(F),
    #[error(
        "the guest asked for operation {op}, but its effect table has {count} operations, counted from 0"
    )]
    UnknownOperation { op: u32, count: usize },
    /// A bug of the engine: the ready queue held a run that had no step to execute.
    #[error("the scheduler reached a run that was not ready")]
    NotReady,
    #[error("the run did not end by its deadline, {deadline_ms} ms on the monotonic clock")]
    TimedOut { deadline_ms: u64 },
}

/// A handler's description of its failure.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct HandlerError {
    pub message: String,
}

impl HandlerError {
    pub fn new(message: impl Into<String>) -> HandlerError {
        HandlerError { message: message.into() }
    }
}

/// A run that was not started. The guest is returned, so that the shell can release its resources.
#[derive(Debug, Error)]
#[error("{refused}")]
pub struct NotStarted<G> {
    pub refused: StartRefused,
    pub guest: G,
}

/// Why a run was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StartRefused {
    #[error(
        "{max} runs are active, which is the limit (runs_max): start this run when another one has ended"
    )]
    TooManyRuns { max: usize },
    #[error(
        "{max} timers are set, which is the limit (timers_max): start this run without a deadline, or later"
    )]
    TooManyTimers { max: usize },
}

/// Why an input was refused. The engine's state is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InputRefused {
    #[error(
        "{max} external completions wait for the next tick, which is the limit (external_max): tick, then retry"
    )]
    ExternalQueueFull { max: usize },
    #[error("{max} timers are set, which is the limit (timers_max): retry when others have fired")]
    TooManyTimers { max: usize },
    #[error("the run has {max} timers, which is the limit of one run (run_timers_max)")]
    TooManyRunTimers { max: usize },
}
