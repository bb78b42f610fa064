//! Conflicts: a commit found state to be another than the handler had read. Nothing of it is written, and the event is run
//! again without that counting as a failed attempt, so that a read-modify-write is exact however many do it at once.

use std::sync::Arc;

use millrace_model::{ClaimRow, Event, Identity, Refusal, Suspicion, Ticket, Timestamp};

use crate::act::{Act, Then, waiting};
use crate::error::CommitError;
use crate::input::StateChanges;
use crate::worker::Worker;

/// The pause doubles this often at most.
const BACKOFF_DOUBLINGS_MAX: u32 = 6;

/// What the checks of a handler's commit stand for, in their order: the caller's own, the identities it expects to be as
/// it read them, and the proof of the lease behind both.
#[derive(Clone, Debug)]
pub struct CommitChecks {
    own: usize,
    expected: Vec<Identity>,
}

impl CommitChecks {
    pub fn of(changes: &StateChanges) -> CommitChecks {
        let expected = changes.expected.iter().map(|expected| expected.identity.clone());
        CommitChecks { own: changes.checks.len(), expected: expected.collect() }
    }

    /// Why the commit was refused.
    pub fn error(mut self, refusal: Refusal) -> CommitError {
        let Refusal { check, found } = refusal;
        if check < self.own {
            return CommitError::Refused { check, found };
        }
        let at = check - self.own;
        if at < self.expected.len() {
            return CommitError::Conflict { identity: self.expected.swap_remove(at) };
        }
        CommitError::LeaseExpired
    }
}

impl Worker {
    /// The claim waits for a moment and is then run again by whoever takes it. The count of conflicts is in its row, so
    /// that a handler which never gets through ends in a dead letter over any number of processes.
    pub(crate) fn run_again(
        &mut self,
        now: Timestamp,
        handler: usize,
        ticket: &Ticket,
        event: &Arc<Event>,
        identity: Identity,
    ) -> Act {
        let conflicts = ticket.row.conflicts.saturating_add(1);
        if conflicts > self.config.conflict_retries_max {
            let error = format!("{conflicts} conflicts in a row, the last because {identity} had changed");
            return self.release(now, handler, ticket, event, &error, None);
        }
        let for_ms = self.conflict_backoff_ms(conflicts);
        let due = now + for_ms;
        // The run came back: it has not ended its process.
        let suspicion = Suspicion::None;
        let row = ClaimRow { conflicts, suspicion, ..waiting(&ticket.row, now, for_ms) };
        let again = Ticket { row, ..ticket.clone() };
        let then = Then::RunAgain { handler, event: event.clone(), identity, conflicts, due };
        let (check, delete) = ticket.end();
        Act { checks: vec![check], ops: vec![delete, again.put()], then }
    }

    /// Drawn from the whole span: those who met once should not meet again.
    fn conflict_backoff_ms(&mut self, conflicts: u32) -> u64 {
        let doublings = conflicts.saturating_sub(1).min(BACKOFF_DOUBLINGS_MAX);
        let most = self.config.conflict_backoff_ms.saturating_mul(1 << doublings);
        self.draw.below(most.saturating_add(1))
    }
}
