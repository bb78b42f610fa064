//! The errors of a journal, grouped by what the caller has to do next.

use millrace_store::FailureCause;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The request failed, timed out, or its answer was lost: it may or may not have happened. Look, then try again.
    #[error("the engine could not be reached: {0}")]
    Unknown(FailureCause),
    /// The engine refuses, and trying again will not help: missing rights, no such bucket, no such schema.
    #[error("the engine refuses: {0}")]
    Refused(FailureCause),
    /// The engine does not keep a promise that a journal needs, so nothing may be stored there. The text says which
    /// promise, and what to change.
    #[error("this engine must not be used: {0}")]
    Unfit(String),
}
