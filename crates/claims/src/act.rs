//! Acts: small pieces of a batch that stand or fall together, and what follows from each. Many ride in one flight.

use std::sync::Arc;

use millrace_model::{
    BATCH_BYTES_MAX, Check, ClaimRow, ClaimState, Ending, Event, FinishedRow, Op, Space, Ticket, Timestamp,
    keys,
};

use crate::build::{append, caused_by, depth_allowed, derived_id};
use crate::error::CommitError;
use crate::input::RunId;
use crate::spec::OutEvent;
use crate::worker::Worker;

/// The type of the events that tell of dead letters.
pub const DEAD_LETTER_TOPIC: &str = "event.dead_letter";
/// Most bytes of a handler's error that are kept whatever `error_bytes_max` says: it stands in several rows.
pub const ERROR_BYTES_LIMIT: usize = 64 << 10;

#[derive(Clone, Debug)]
pub(crate) struct Act {
    pub(crate) checks: Vec<Check>,
    pub(crate) ops: Vec<Op>,
    pub(crate) then: Then,
}

/// What follows when the act is durable, or when its check refused it.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    Nothing,
    Acked { handler: usize, event: Arc<Event> },
    Released { handler: usize, event: Arc<Event>, attempts: u32, due: Timestamp, error: String },
    DeadLettered { handler: usize, event: Arc<Event>, attempts: u32, error: String },
    GivenBack { handler: usize },
    Renewed { run: RunId, ticket: Ticket },
    Fired { schedule: usize, row: millrace_model::ScheduleRow, at: Vec<Timestamp> },
}

impl Act {
    /// Put into a batch with others it takes about this much.
    pub(crate) fn bytes(&self) -> usize {
        self.ops.iter().map(Op::bytes).sum()
    }

    pub(crate) fn fits(&self) -> bool {
        self.bytes() <= BATCH_BYTES_MAX
    }
}

impl Worker {
    /// The handler is done: the claim ends, the event is finished for it, what it emitted appears; all or nothing.
    pub(crate) fn ack(
        &mut self,
        now: Timestamp,
        handler: usize,
        ticket: &Ticket,
        event: &Arc<Event>,
        emitted: &[OutEvent],
    ) -> Result<Act, CommitError> {
        let limit = self.config.max_batch_size;
        if emitted.len() > limit {
            return Err(CommitError::BatchSizeExceeded { count: emitted.len(), limit });
        }
        let finished = FinishedRow {
            ending: Ending::Acked,
            at: now,
            attempts: ticket.row.attempts,
            session: Some(self.identity.session.clone()),
            error: None,
        };
        let (check, delete) = ticket.end();
        let mut ops = vec![delete, put_finished(ticket, &finished)];
        let lineage = caused_by(event);
        for (at, out) in emitted.iter().enumerate() {
            depth_allowed(&lineage, self.config.max_event_chain_depth)?;
            let parts = [&event.id.to_string(), ticket.handler.as_str(), &at.to_string()];
            let (id, nonce) = (derived_id("emit", &parts), self.draw.next());
            ops.extend(append(&self.identity.namespace, &self.topics, out, id, lineage.clone(), nonce));
        }
        let batch = millrace_model::Batch { ops, ..Default::default() };
        crate::build::fits(&batch)?;
        let then = Then::Acked { handler, event: event.clone() };
        Ok(Act { checks: self.fence(check), ops: batch.ops, then })
    }

    fn fence(&self, check: Check) -> Vec<Check> {
        #[cfg(feature = "sabotage")]
        if self.config.sabotage == Some(crate::Sabotage::AckWithoutFence) {
            return Vec::new();
        }
        vec![check]
    }

    /// The try failed: the event waits for the next one, or is given up.
    pub(crate) fn release(
        &mut self,
        now: Timestamp,
        handler: usize,
        ticket: &Ticket,
        event: &Arc<Event>,
        error: &str,
    ) -> Act {
        let attempts = ticket.row.attempts.saturating_add(1);
        if attempts >= self.config.event_max_attempts {
            return self.give_up(now, handler, ticket, event, attempts, error);
        }
        let error = self.kept(error);
        let due = now + self.backoff_ms(attempts);
        let waiting = Ticket {
            row: ClaimRow { attempts, error: Some(error.clone()), ..waiting(&ticket.row, due) },
            ..ticket.clone()
        };
        let then = Then::Released { handler, event: event.clone(), attempts, due, error };
        let (check, delete) = ticket.end();
        Act { checks: vec![check], ops: vec![delete, waiting.put()], then }
    }

    pub(crate) fn kept(&self, error: &str) -> String {
        cut(error, self.config.error_bytes_max.min(ERROR_BYTES_LIMIT))
    }

    /// Doubles with every attempt up to the most, and a little apart so that failures do not march in step.
    fn backoff_ms(&mut self, attempts: u32) -> u64 {
        const JITTER_MS: u64 = 101;
        let base = self.config.event_backoff_base_ms;
        let doubled = base.saturating_mul(1u64.checked_shl(attempts.min(63)).unwrap_or(u64::MAX));
        doubled.min(self.config.event_backoff_max_ms) + self.draw.below(JITTER_MS)
    }

    /// Somebody else may have it: it was never started, so no attempt is counted.
    pub(crate) fn give_back(&self, now: Timestamp, handler: usize, ticket: &Ticket) -> Act {
        let row = ClaimRow { session: None, ..waiting(&ticket.row, now) };
        let back = Ticket { row, ..ticket.clone() };
        let then = Then::GivenBack { handler };
        let (check, delete) = ticket.end();
        Act { checks: vec![check], ops: vec![delete, back.put()], then }
    }

    pub(crate) fn renew(&self, now: Timestamp, run: RunId, ticket: &Ticket) -> Act {
        let due = now + self.config.event_claim_lease_ms;
        let renewed = Ticket { row: ClaimRow { due, ..ticket.row.clone() }, ..ticket.clone() };
        let (check, delete) = ticket.end();
        let ops = vec![delete, renewed.put()];
        Act { checks: vec![check], ops, then: Then::Renewed { run, ticket: renewed } }
    }
}

fn waiting(row: &ClaimRow, due: Timestamp) -> ClaimRow {
    ClaimRow { state: ClaimState::Waiting, due, ..row.clone() }
}

pub(crate) fn put_finished(ticket: &Ticket, row: &FinishedRow) -> Op {
    let key = keys::finished(&ticket.stream, ticket.offset, &ticket.handler);
    Op::Put { space: Space::Finished, key, value: row.encode() }
}

/// At most `bytes_max` bytes, whole characters.
pub(crate) fn cut(text: &str, bytes_max: usize) -> String {
    let end = (0..=bytes_max.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].to_owned()
}
