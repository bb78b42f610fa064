//! How a run ended.

use std::sync::Arc;

use thiserror::Error;

use crate::error::RunError;

/// The terminal outcome of a run: exactly one per run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunOutcome<V, F> {
    Value(V),
    /// Shared with the error sink.
    Failed(Arc<RunError<F>>),
    Cancelled {
        reason: Option<V>,
    },
}

/// Why a run has no value. Unlike a plain error, it tells failed and cancelled runs apart.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RunStopped<V, F> {
    #[error("{0}")]
    Failed(Arc<RunError<F>>),
    #[error("Run cancelled")]
    Cancelled { reason: Option<V> },
}

impl<V, F> RunOutcome<V, F> {
    /// Turns the outcome into a `Result`, for callers that use `?`.
    ///
    /// # Errors
    ///
    /// [`RunStopped`] if the run failed or was cancelled.
    pub fn into_result(self) -> Result<V, RunStopped<V, F>> {
        match self {
            RunOutcome::Value(value) => Ok(value),
            RunOutcome::Failed(error) => Err(RunStopped::Failed(error)),
            RunOutcome::Cancelled { reason } => Err(RunStopped::Cancelled { reason }),
        }
    }

    /// Returns `value`, `failed` or `cancelled`, as in the output of `millrace run`.
    pub fn kind(&self) -> &'static str {
        match self {
            RunOutcome::Value(_) => "value",
            RunOutcome::Failed(_) => "failed",
            RunOutcome::Cancelled { .. } => "cancelled",
        }
    }
}
