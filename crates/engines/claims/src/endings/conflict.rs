//! Conflicts: a commit finds that state has changed since the handler read it. Nothing of the commit is written, and
//! the event is run again without counting a failed attempt: a read-modify-write stays exact, however many do it
//! concurrently.

use std::sync::Arc;

use millrace_model::{ClaimRow, Event, Identity, Refusal, Suspicion, Ticket, Timestamp};

use crate::commits::action::{Action, FollowUp};
use crate::endings::retry::waiting_row;
use crate::interface::error::CommitError;
use crate::interface::input::StateChanges;
use crate::worker::Worker;

/// How often the pause doubles at most.
const BACKOFF_DOUBLINGS_MAX: u32 = 6;

/// The meaning of the checks of a handler's commit, in their order: the caller's own, then the identities that it
/// expects to be unchanged, and last the proof of the lease.
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

    /// Translates a refused check into the reason of the refusal.
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
    /// Lets the event wait for a moment, after which any session may run it again. The claim's row counts conflicts, so
    /// that a handler which never succeeds ends in a dead letter, across any number of processes.
    pub(crate) fn run_again(
        &mut self,
        now: Timestamp,
        handler: usize,
        ticket: &Ticket,
        event: &Arc<Event>,
        identity: Identity,
    ) -> Action {
        let conflicts = ticket.row.conflicts.saturating_add(1);
        if conflicts > self.config.conflict_retries_max {
            let error = format!("{conflicts} conflicts in a row, the last because {identity} had changed");
            return self.release(now, handler, ticket, event, &error, None);
        }
        let for_ms = self.conflict_backoff_ms(conflicts);
        let due = now + for_ms;
        // The run came back, so it has not ended its process.
        let suspicion = Suspicion::None;
        let row = ClaimRow { conflicts, suspicion, ..waiting_row(&ticket.row, now, for_ms) };
        let again = Ticket { row, ..ticket.clone() };
        let follow_up = FollowUp::RunAgain { handler, event: event.clone(), identity, conflicts, due };
        let (check, delete) = ticket.end();
        Action { checks: vec![check], ops: vec![delete, again.put()], follow_up }
    }

    /// Drawn from the whole range, so that runs that collided once do not collide again.
    fn conflict_backoff_ms(&mut self, conflicts: u32) -> u64 {
        let doublings = conflicts.saturating_sub(1).min(BACKOFF_DOUBLINGS_MAX);
        let most = self.config.conflict_backoff_ms.saturating_mul(1 << doublings);
        self.prng.below(most.saturating_add(1))
    }
}
