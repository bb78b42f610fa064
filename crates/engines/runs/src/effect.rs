//! Everything the engine asks its shell to do: a closed list.

use std::sync::Arc;

use crate::error::RunError;
use crate::guest::Guest;
use crate::ids::{CallId, RunId};
use crate::outcome::RunOutcome;

/// In the order in which they are to be carried out. A run that ends has, in this order: [`Effect::Abandon`] if a
/// handler was still working, [`Effect::Release`], [`Effect::Failure`] if it failed, [`Effect::Outcome`].
#[derive(Debug)]
pub enum Effect<G: Guest> {
    /// Call the handler of this operation; hand its answer back as [`crate::Input::Answered`],
    /// [`crate::Input::Completed`] or [`crate::Input::AnswerAt`]. A run never has two calls at a time.
    Call { call: CallId, op: u32, args: Vec<G::Value> },
    /// A timer set with [`crate::Input::WakeAt`] is due.
    Woke { call: CallId, token: u64 },
    /// The run ended while this call had no answer: its handler may stop. An answer would be dropped.
    Abandon { call: CallId },
    /// The run has ended: give back what its guest holds ([`Guest::release`]).
    Release { run: RunId, guest: G },
    /// For the error sink. Changes nothing; the outcome follows.
    Failure { run: RunId, error: Arc<RunError<G::Fault>> },
    /// The run's only outcome.
    Outcome { run: RunId, outcome: RunOutcome<G::Value, G::Fault> },
}
