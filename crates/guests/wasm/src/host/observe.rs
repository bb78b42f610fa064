//! Events of runs as they happen, for traces, recordings and logs. Nothing depends on them.

use crate::fault::RunFailure;
use crate::handler::HandlerResult;
use crate::host::outcome::{EffectOutcome, RunNumber};
use crate::table::EffectOp;
use crate::value::Value;

/// An event of a run, in the order in which events happened on the host's thread.
#[derive(Clone, Copy, Debug)]
pub enum RunEvent<'a> {
    Started {
        run: RunNumber,
        export: &'a str,
    },
    /// A handler is about to be called.
    Call {
        run: RunNumber,
        step: u64,
        op: &'a EffectOp,
        args: &'a [Value],
    },
    /// A sleep of the handler is over.
    Woke {
        run: RunNumber,
        op: &'a EffectOp,
    },
    /// The handler answered while the run waited for it; late answers are not reported.
    Reply {
        run: RunNumber,
        step: u64,
        op: &'a EffectOp,
        reply: &'a HandlerResult,
    },
    /// Somebody asked to cancel the run. Not accepted: the run had ended, or was cancelled before. If refused requests
    /// come faster than the host's thread reads them, some are not reported.
    Cancel {
        run: RunNumber,
        accepted: bool,
    },
    Ended {
        run: RunNumber,
        outcome: &'a EffectOutcome,
    },
}

/// Is called for every event of the runs of a host. Called on the host's thread; a panic is caught.
pub type Observer = Box<dyn FnMut(RunEvent<'_>) + Send>;

/// Is called for failed runs, before their outcome is visible to others. Called on the host's thread; a panic is
/// caught.
pub type ErrorSink = Box<dyn FnMut(RunNumber, &RunFailure) + Send>;
