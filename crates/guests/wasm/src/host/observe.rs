//! What a host tells about its runs as they go: for traces, recordings and logs. Nothing depends on it.

use crate::fault::RunFailure;
use crate::handler::HandlerResult;
use crate::host::outcome::{EffectOutcome, RunNumber};
use crate::table::EffectOp;
use crate::value::Value;

/// A moment of a run, in the order in which things happened on the host's thread.
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
    /// The handler answered while the run waited for it; late answers are not told.
    Reply {
        run: RunNumber,
        step: u64,
        op: &'a EffectOp,
        reply: &'a HandlerResult,
    },
    /// Somebody asked to cancel the run. Not accepted: the run had ended, or was cancelled before. Of refused requests
    /// that come faster than the host's thread reads them, some are not told.
    Cancel {
        run: RunNumber,
        accepted: bool,
    },
    Ended {
        run: RunNumber,
        outcome: &'a EffectOutcome,
    },
}

/// Hears of everything that happens to the runs of a host. Called on the host's thread; a panic is caught.
pub type Observer = Box<dyn FnMut(RunEvent<'_>) + Send>;

/// Hears of failed runs, before their outcome is known to others. Called on the host's thread; a panic is caught.
pub type ErrorSink = Box<dyn FnMut(RunNumber, &RunFailure) + Send>;
