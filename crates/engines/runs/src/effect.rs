//! Everything the engine asks its shell to do: a closed list.

use std::sync::Arc;

use crate::error::RunError;
use crate::guest::Guest;
use crate::ids::{CallId, RunId};
use crate::outcome::RunOutcome;

/// Effects are to be carried out in the order in which they come. When a run ends, they are: [`Effect::Abandon`] if a
/// handler was still working, [`Effect::Release`], [`Effect::Failure`] if the run failed, [`Effect::Outcome`].
#[derive(Debug)]
pub enum Effect<G: Guest> {
    /// Call the handler of this operation and report its answer as [`crate::Input::Answered`],
    /// [`crate::Input::Completed`] or [`crate::Input::AnswerAt`]. A run never has two calls at a time.
    Call { call: CallId, op: u32, args: Vec<G::Value> },
    /// A timer set with [`crate::Input::WakeAt`] is due.
    Woke { call: CallId, token: u64 },
    /// The run ended before this call had an answer: its handler may stop. A later answer is dropped.
    Abandon { call: CallId },
    /// The run has ended: release the resources of its guest ([`Guest::release`]).
    Release { run: RunId, guest: G },
    /// A report for the error sink. Nothing depends on it; the outcome follows.
    Failure { run: RunId, error: Arc<RunError<G::Fault>> },
    /// The run's only outcome.
    Outcome { run: RunId, outcome: RunOutcome<G::Value, G::Fault> },
}
