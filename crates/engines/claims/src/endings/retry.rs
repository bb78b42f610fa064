//! Events that wait for another run: after a failed attempt, or given back without one.

use std::sync::Arc;

use millrace_model::{ClaimRow, ClaimState, Event, RunMark, Suspicion, Ticket, Timestamp};

use crate::commits::action::{Action, FollowUp};
use crate::worker::Worker;

/// Most bytes of a handler's error that are kept, whatever `error_bytes_max` says: the error is stored in several rows.
pub const ERROR_BYTES_LIMIT: usize = 64 << 10;

/// The jitter added to a backoff is below this.
pub(crate) const BACKOFF_JITTER_MS: u64 = 101;

impl Worker {
    /// The attempt failed: the event waits for `after_ms` or the backoff until the next attempt, or is given up.
    pub(crate) fn release(
        &mut self,
        now: Timestamp,
        handler: usize,
        ticket: &Ticket,
        event: &Arc<Event>,
        error: &str,
        after_ms: Option<u64>,
    ) -> Action {
        let attempts = ticket.row.attempts.saturating_add(1);
        if attempts >= self.handlers[handler].limits().max_attempts {
            return self.give_up(now, handler, ticket, event, attempts, error);
        }
        let error = self.shortened(error);
        let backoff_ms = after_ms.unwrap_or_else(|| self.backoff_ms(handler, attempts));
        let due = now + backoff_ms;
        let row = ClaimRow {
            attempts,
            conflicts: 0,
            error: Some(error.clone()),
            // The run came back, so it has not ended its process.
            suspicion: Suspicion::None,
            ..waiting_row(&ticket.row, now, backoff_ms)
        };
        let waiting = Ticket { row, ..ticket.clone() };
        let follow_up = FollowUp::Released { handler, event: event.clone(), attempts, due, error };
        let (check, delete) = ticket.end();
        Action { checks: vec![check], ops: vec![delete, waiting.put()], follow_up }
    }

    /// Returns the error, cut to the size that is kept.
    pub(crate) fn shortened(&self, error: &str) -> String {
        truncate(error, self.config.error_bytes_max.min(ERROR_BYTES_LIMIT))
    }

    /// Doubles with every attempt up to the maximum. Jitter keeps events that failed together from being retried
    /// together.
    fn backoff_ms(&mut self, handler: usize, attempts: u32) -> u64 {
        let limits = self.handlers[handler].limits();
        let base = limits.backoff_base_ms;
        let doubled = base.saturating_mul(1u64.checked_shl(attempts.min(63)).unwrap_or(u64::MAX));
        doubled.min(limits.backoff_max_ms) + self.prng.below(BACKOFF_JITTER_MS)
    }

    /// Gives an event back that was never started: others may claim it, and no attempt is counted.
    pub(crate) fn give_back(&self, now: Timestamp, handler: usize, ticket: &Ticket) -> Action {
        let row = ClaimRow { session: None, ..waiting_row(&ticket.row, now, 0) };
        let back = Ticket { row, ..ticket.clone() };
        let follow_up = FollowUp::GivenBack { handler };
        let (check, delete) = ticket.end();
        Action { checks: vec![check], ops: vec![delete, back.put()], follow_up }
    }
}

/// Returns the row of a claim that waits for `for_ms` until the event may run again.
pub(crate) fn waiting_row(row: &ClaimRow, now: Timestamp, for_ms: u64) -> ClaimRow {
    let (state, due, run) = (ClaimState::Waiting, now + for_ms, RunMark::Unknown);
    ClaimRow { state, due, for_ms: Some(for_ms), run, ..row.clone() }
}

/// Cuts a text to at most `bytes_max` bytes, at a character boundary.
pub(crate) fn truncate(text: &str, bytes_max: usize) -> String {
    let end = (0..=bytes_max.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].to_owned()
}
