//! Checks the order of events in a recording. No run can have made a recording with deleted, swapped or copied lines,
//! and its replay would wait for steps that never come: such a recording is refused.

use std::collections::BTreeMap;

use crate::trace::{TraceEvent, TraceKind};

/// Why an event cannot follow those before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderProblem {
    #[error("{run} was not started by a line before this one")]
    NotStarted { run: String },
    #[error("it starts {run}, but the next run is {expected}")]
    StartOrder { run: String, expected: String },
    #[error("{run} waits for the reply to {op}")]
    Waits { run: String, op: String },
    #[error("{run} does not wait for a reply to {op}")]
    DoesNotWait { run: String, op: String },
    #[error("{run} was cancelled, and has no outcome yet")]
    Cancelled { run: String },
    #[error("{run} has ended")]
    Ended { run: String },
}

/// How far a run has got.
#[derive(Debug)]
enum RunStage {
    /// The program has to take a step: its first, or one after a reply.
    Stepping,
    Waiting {
        op: String,
    },
    Cancelled,
    Ended,
}

/// The runs of a recording that is being read.
#[derive(Debug, Default)]
pub(super) struct RunStages(BTreeMap<String, RunStage>);

impl RunStages {
    pub(super) fn follow(&mut self, event: &TraceEvent) -> Result<(), OrderProblem> {
        let run = || event.run.clone();
        if let TraceKind::Start { .. } = &event.what {
            let expected = format!("run_{}", self.0.len() + 1);
            if event.run != expected {
                return Err(OrderProblem::StartOrder { run: run(), expected });
            }
            self.0.insert(expected, RunStage::Stepping);
            return Ok(());
        }
        let stage = self.0.get_mut(&event.run).ok_or_else(|| OrderProblem::NotStarted { run: run() })?;
        let next = match (&*stage, &event.what) {
            // A cancellation that came too late changes nothing.
            (_, TraceKind::Cancel { accepted: false }) => return Ok(()),
            (RunStage::Ended, _) => return Err(OrderProblem::Ended { run: run() }),
            (RunStage::Cancelled, TraceKind::Outcome { kind, .. }) if kind == "cancelled" => RunStage::Ended,
            (RunStage::Cancelled, _) => return Err(OrderProblem::Cancelled { run: run() }),
            (RunStage::Stepping, TraceKind::Call { op, .. }) => RunStage::Waiting { op: op.clone() },
            (RunStage::Waiting { op: asked }, TraceKind::Woke { op }) if asked == op => return Ok(()),
            (RunStage::Waiting { op: asked }, TraceKind::Reply { op, .. }) if asked == op => {
                RunStage::Stepping
            }
            (_, TraceKind::Woke { op } | TraceKind::Reply { op, .. }) => {
                return Err(OrderProblem::DoesNotWait { run: run(), op: op.clone() });
            }
            (_, TraceKind::Cancel { accepted: true }) => RunStage::Cancelled,
            (RunStage::Stepping, TraceKind::Outcome { .. }) => RunStage::Ended,
            // Only the clock and a cancellation end a run that waits.
            (RunStage::Waiting { .. }, TraceKind::Outcome { kind, timed, .. })
                if *timed || kind == "cancelled" =>
            {
                RunStage::Ended
            }
            (RunStage::Waiting { op }, _) => return Err(OrderProblem::Waits { run: run(), op: op.clone() }),
            // Handled above.
            (RunStage::Stepping, TraceKind::Start { .. }) => return Ok(()),
        };
        *stage = next;
        Ok(())
    }
}
