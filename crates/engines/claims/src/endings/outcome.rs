//! Runs that did not succeed: retried by the backoff or at a time of their choice, snoozed, discarded, or given up.

use std::sync::Arc;

use millrace_model::{ClaimRow, Ending, Event, FinishedRow, Suspicion, Ticket, Timestamp};

use crate::commits::action::{Action, FollowUp};
use crate::endings::finished::finished_ops;
use crate::endings::retry::waiting_row;
use crate::interface::error::RunError;
use crate::worker::Worker;

/// The longest pause a handler may ask for; longer ones are shortened to it.
pub const AFTER_MS_MAX: u64 = 366 * 24 * 3600 * 1000;

impl Worker {
    pub(crate) fn end_unsuccessful(
        &mut self,
        now: Timestamp,
        handler: usize,
        ticket: &Ticket,
        event: &Arc<Event>,
        error: RunError,
    ) -> Action {
        match error {
            RunError::Failed(error) => self.release(now, handler, ticket, event, &error, None),
            RunError::RetryAfter { after_ms, error } => {
                self.release(now, handler, ticket, event, &error, Some(after_ms.min(AFTER_MS_MAX)))
            }
            RunError::Hopeless(error) => {
                let attempts = ticket.row.attempts.saturating_add(1);
                self.give_up(now, handler, ticket, event, attempts, &error)
            }
            RunError::Snooze { after_ms, reason } => {
                self.snooze(now, handler, ticket, event, after_ms.min(AFTER_MS_MAX), &reason)
            }
            RunError::Discard { reason } => self.discard(now, handler, ticket, event, &reason),
        }
    }

    /// Runs the event again later without counting an attempt; after `event_max_snoozes` times, with an attempt.
    fn snooze(
        &mut self,
        now: Timestamp,
        handler: usize,
        ticket: &Ticket,
        event: &Arc<Event>,
        after_ms: u64,
        reason: &str,
    ) -> Action {
        let limit = self.config.event_max_snoozes;
        if ticket.row.snoozes >= limit {
            let error = format!("snoozed {limit} times already (event_max_snoozes): {reason}");
            return self.release(now, handler, ticket, event, &error, Some(after_ms));
        }
        let (snoozes, reason) = (ticket.row.snoozes + 1, self.shortened(reason));
        let row = ClaimRow {
            snoozes,
            conflicts: 0,
            // The run came back, so it has not ended its process.
            suspicion: Suspicion::None,
            error: Some(format!("snoozed: {reason}")),
            ..waiting_row(&ticket.row, now, after_ms)
        };
        let follow_up = FollowUp::Snoozed { handler, event: event.clone(), snoozes, due: row.due, reason };
        let (check, delete) = ticket.end();
        let put = Ticket { row, ..ticket.clone() }.put();
        Action { checks: vec![check], ops: vec![delete, put], follow_up }
    }

    /// Finished without success: nothing is emitted and there is no dead letter, but a row that records the reason.
    fn discard(
        &mut self,
        now: Timestamp,
        handler: usize,
        ticket: &Ticket,
        event: &Arc<Event>,
        reason: &str,
    ) -> Action {
        let reason = self.shortened(reason);
        let finished = FinishedRow {
            ending: Ending::Discarded,
            at: now,
            attempts: ticket.row.attempts,
            session: Some(self.identity.session.clone()),
            error: Some(reason.clone()),
        };
        let (check, delete) = ticket.end();
        let follow_up = FollowUp::Discarded { handler, event: event.clone(), reason };
        Action {
            checks: vec![check],
            ops: std::iter::once(delete).chain(finished_ops(ticket, &finished)).collect(),
            follow_up,
        }
    }
}
