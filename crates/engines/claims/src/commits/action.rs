//! Actions: parts of a batch that are committed or refused as a whole, and what follows from each. Many actions share one
//! commit (`shared_commit.rs`).

use std::sync::Arc;

use millrace_model::{
    BATCH_BYTES_MAX, Check, ClaimRow, ClaimState, Ending, Event, FinishedRow, Now, Op, RunMark, Space,
    Suspicion, Ticket, Timestamp, keys,
};

use crate::commits::batch_builder::{caused_by, depth_allowed, derived_id};
use crate::commits::event_writer::{EventWriter, NewEventId};
use crate::interface::error::CommitError;
use crate::interface::input::RunId;
use crate::interface::spec::OutEvent;
use crate::worker::Worker;

/// The type of the events that report dead letters.
pub const DEAD_LETTER_TOPIC: &str = "event.dead_letter";
/// Most bytes of a handler's error that are kept, whatever `error_bytes_max` says: the error is stored in several rows.
pub const ERROR_BYTES_LIMIT: usize = 64 << 10;

/// The jitter added to a backoff is below this.
pub(crate) const BACKOFF_JITTER_MS: u64 = 101;

#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) checks: Vec<Check>,
    pub(crate) ops: Vec<Op>,
    pub(crate) follow_up: FollowUp,
}

/// The consequences of an action: when it is durable, or when one of its checks was refused.
#[derive(Clone, Debug)]
pub(crate) enum FollowUp {
    Nothing,
    Acked {
        handler: usize,
        event: Arc<Event>,
    },
    Released {
        handler: usize,
        event: Arc<Event>,
        attempts: u32,
        due: Timestamp,
        error: String,
    },
    DeadLettered {
        handler: usize,
        event: Arc<Event>,
        attempts: u32,
        error: String,
    },
    /// A conflict: the event waits to be run again.
    RunAgain {
        handler: usize,
        event: Arc<Event>,
        identity: millrace_model::Identity,
        conflicts: u32,
        due: Timestamp,
    },
    Snoozed {
        handler: usize,
        event: Arc<Event>,
        snoozes: u32,
        due: Timestamp,
        reason: String,
    },
    Discarded {
        handler: usize,
        event: Arc<Event>,
        reason: String,
    },
    GivenBack {
        handler: usize,
    },
    Renewed {
        run: RunId,
        ticket: Ticket,
    },
    Marked {
        run: RunId,
        ticket: Ticket,
    },
    Fired {
        schedule: usize,
        row: millrace_model::ScheduleRow,
        at: Vec<Timestamp>,
    },
}

impl Action {
    /// The approximate size of the action within a batch.
    pub(crate) fn bytes(&self) -> usize {
        self.ops.iter().map(Op::bytes).sum()
    }

    pub(crate) fn fits(&self) -> bool {
        self.bytes() <= BATCH_BYTES_MAX
    }

    /// The handler for which the action ends an event, if it ends one.
    pub(crate) fn ends_event_of(&self) -> Option<usize> {
        match &self.follow_up {
            FollowUp::Acked { handler, .. }
            | FollowUp::DeadLettered { handler, .. }
            | FollowUp::Discarded { handler, .. } => Some(*handler),
            _ => None,
        }
    }
}

impl Worker {
    /// The handler succeeded: the claim ends, the event is finished for the handler, and its emitted events are
    /// appended; all or nothing.
    pub(crate) fn ack(
        &mut self,
        now: Now,
        handler: usize,
        ticket: &Ticket,
        event: &Arc<Event>,
        emitted: &[OutEvent],
    ) -> Result<Action, CommitError> {
        let limit = self.config.max_batch_size;
        if emitted.len() > limit {
            return Err(CommitError::BatchSizeExceeded { count: emitted.len(), limit });
        }
        let finished = FinishedRow {
            ending: Ending::Acked,
            at: now.wall,
            attempts: ticket.row.attempts,
            session: Some(self.identity.session.clone()),
            error: None,
        };
        let (check, delete) = ticket.end();
        let mut ops = vec![delete];
        ops.extend(finished_ops(ticket, &finished));
        let lineage = caused_by(event);
        let mut writer = EventWriter::new(&self.identity.namespace, &self.topics, now, &mut self.elapsed);
        for (at, out) in (0..).zip(emitted) {
            depth_allowed(&lineage, self.config.max_event_chain_depth)?;
            let parts = [&event.id.to_string(), ticket.handler.as_str(), &at.to_string()];
            let id = NewEventId { id: derived_id("emit", &parts), may_repeat: true };
            ops.extend(writer.ops(out, id, lineage.clone(), (self.prng.next(), at))?);
        }
        let batch = millrace_model::Batch { ops, ..Default::default() };
        crate::commits::batch_builder::fits(&batch)?;
        let follow_up = FollowUp::Acked { handler, event: event.clone() };
        Ok(Action { checks: vec![check], ops: batch.ops, follow_up })
    }

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
        if attempts >= self.handlers[handler].limits.max_attempts {
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

    pub(crate) fn shortened(&self, error: &str) -> String {
        truncate(error, self.config.error_bytes_max.min(ERROR_BYTES_LIMIT))
    }

    /// Doubles with every attempt up to the maximum. Jitter keeps events that failed together from being retried
    /// together.
    fn backoff_ms(&mut self, handler: usize, attempts: u32) -> u64 {
        let limits = &self.handlers[handler].limits;
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

    pub(crate) fn renew(&self, now: Timestamp, run: RunId, handler: usize, ticket: &Ticket) -> Action {
        let lease_ms = self.handlers[handler].limits.lease_ms;
        let mark = ticket.row.run.max(RunMark::Started);
        let row = ClaimRow { due: now + lease_ms, for_ms: Some(lease_ms), run: mark, ..ticket.row.clone() };
        let renewed = Ticket { row, ..ticket.clone() };
        let (check, delete) = ticket.end();
        let ops = vec![delete, renewed.put()];
        Action { checks: vec![check], ops, follow_up: FollowUp::Renewed { run, ticket: renewed } }
    }
}

pub(crate) fn waiting_row(row: &ClaimRow, now: Timestamp, for_ms: u64) -> ClaimRow {
    let (state, due, run) = (ClaimState::Waiting, now + for_ms, RunMark::Unknown);
    ClaimRow { state, due, for_ms: Some(for_ms), run, ..row.clone() }
}

/// Writes that the event has ended for the handler, and deletes the dead letter if this was its replay.
pub(crate) fn finished_ops(ticket: &Ticket, row: &FinishedRow) -> impl Iterator<Item = Op> + use<> {
    let key = keys::finished(&ticket.stream, ticket.offset, &ticket.handler);
    let put = Op::Put { space: Space::Finished, key, value: row.encode() };
    let letter = ticket.row.letter.clone().map(|key| Op::Delete { space: Space::DeadLetters, key });
    std::iter::once(put).chain(letter)
}

/// Cuts a text to at most `bytes_max` bytes, at a character boundary.
pub(crate) fn truncate(text: &str, bytes_max: usize) -> String {
    let end = (0..=bytes_max.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].to_owned()
}
