//! Outcomes of runs, and where callers wait for them.

use std::fmt;
use std::sync::Arc;

use millrace_runs::RunId;
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::fault::RunFailure;
use crate::value::Value;

/// A run of a host, shown as `run_1`, `run_2`, ... in the order of their start. The same number as the scheduler's
/// [`RunId::serial`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunNumber(pub u64);

impl fmt::Display for RunNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run_{}", self.0)
    }
}

impl From<RunId> for RunNumber {
    fn from(run: RunId) -> RunNumber {
        RunNumber(run.serial())
    }
}

/// How a run ended. Exactly one per run; the first terminal transition wins.
#[derive(Clone, Debug, PartialEq)]
pub enum EffectOutcome {
    Value(Value),
    Failed(Arc<RunFailure>),
    Cancelled { reason: Option<Value> },
}

/// Why a run has no value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoValue {
    #[error("{0}")]
    Failed(Arc<RunFailure>),
    #[error("Run cancelled")]
    Cancelled { reason: Option<Value> },
}

impl EffectOutcome {
    /// Turns the outcome into a `Result`, for callers that use `?`.
    ///
    /// # Errors
    ///
    /// [`NoValue`] if the run failed or was cancelled.
    pub fn into_result(self) -> Result<Value, NoValue> {
        match self {
            EffectOutcome::Value(value) => Ok(value),
            EffectOutcome::Failed(failure) => Err(NoValue::Failed(failure)),
            EffectOutcome::Cancelled { reason } => Err(NoValue::Cancelled { reason }),
        }
    }

    /// `value`, `failed` or `cancelled`, as in the output of `millrace run`.
    pub fn kind(&self) -> &'static str {
        match self {
            EffectOutcome::Value(_) => "value",
            EffectOutcome::Failed(_) => "failed",
            EffectOutcome::Cancelled { .. } => "cancelled",
        }
    }
}

/// Holds the outcome of one run. Arbitrates between a cancellation and the run's own end: whichever is decided first is
/// the outcome. Waiters see it when the host's thread has released the run and told its observer.
#[derive(Debug, Default)]
pub(crate) struct OutcomeCell {
    state: Mutex<CellState>,
    blocked: Condvar,
    waiting: Notify,
}

#[derive(Debug, Default)]
struct CellState {
    decided: Option<EffectOutcome>,
    is_published: bool,
}

impl OutcomeCell {
    /// Decides the outcome unless it was decided before. Returns whether it was this call.
    pub(crate) fn decide(&self, outcome: EffectOutcome) -> bool {
        let mut state = self.state.lock();
        let is_first = state.decided.is_none();
        if is_first {
            state.decided = Some(outcome);
        }
        is_first
    }

    /// Returns the decision, whether or not it was published.
    pub(crate) fn decided(&self) -> Option<EffectOutcome> {
        self.state.lock().decided.clone()
    }

    /// Whether the outcome is decided, published or not.
    pub(crate) fn is_decided(&self) -> bool {
        self.state.lock().decided.is_some()
    }

    /// Makes the decided outcome visible to everybody.
    pub(crate) fn publish(&self) {
        self.state.lock().is_published = true;
        self.blocked.notify_all();
        self.waiting.notify_waiters();
    }

    /// Returns the outcome once it is published.
    pub(crate) fn get(&self) -> Option<EffectOutcome> {
        self.state.lock().published()
    }

    pub(crate) async fn wait(&self) -> EffectOutcome {
        loop {
            // Registered before the check, so that an outcome published in between wakes it.
            let mut notified = std::pin::pin!(self.waiting.notified());
            notified.as_mut().enable();
            if let Some(outcome) = self.get() {
                return outcome;
            }
            notified.await;
        }
    }

    pub(crate) fn wait_blocking(&self) -> EffectOutcome {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = state.published() {
                return outcome;
            }
            self.blocked.wait(&mut state);
        }
    }
}

impl CellState {
    fn published(&self) -> Option<EffectOutcome> {
        self.decided.clone().filter(|_| self.is_published)
    }
}
