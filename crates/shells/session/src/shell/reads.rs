//! Reads the store for the engine, and logs its notes.

use millrace_claims::{Note, ReadQuery, ReadResult};
use millrace_store::Store;

/// Returns `None` if the store could not be read: the engine asks again later.
pub(super) fn read(store: &dyn Store, query: &ReadQuery) -> Option<ReadResult> {
    millrace_admin::read(store, query)
        .inspect_err(|error| tracing::warn!(%error, "the store could not be read, it will be tried again"))
        .ok()
}

pub(super) fn log_note(note: &Note, handlers: &[crate::Handler]) {
    let name = |at: usize| handlers.get(at).map_or("?", |handler| handler.id.as_str());
    match note {
        Note::Failed { handler, event, attempts, retry_at, error } => tracing::warn!(
            handler = name(*handler), %event, attempts, %retry_at, error, "a handler failed, it is tried again"
        ),
        Note::DeadLettered { handler, event, attempts, error } => tracing::error!(
            handler = name(*handler), %event, attempts, error, "a handler gave up on an event"
        ),
        Note::LeaseExpired { handler, event } => tracing::warn!(
            handler = name(*handler), %event, "a handler lost its lease: what it did after that was not written"
        ),
        Note::Conflict { handler, event, identity, conflicts, retry_at } => tracing::debug!(
            handler = name(*handler), %event, %identity, conflicts, %retry_at,
            "state changed between a handler's read and its commit, the event is run again"
        ),
        Note::FailedAfterAck { handler, event, error } => tracing::warn!(
            handler = name(*handler), %event, error,
            "a handler failed after it had acknowledged its event: the event is done and not run again"
        ),
        Note::TimedOut { handler, event, timeout_ms, replaced: true } => tracing::warn!(
            handler = name(*handler), %event, timeout_ms, "a handler did not answer in time: its attempt has failed"
        ),
        Note::TimedOut { handler, event, timeout_ms, replaced: false } => tracing::error!(
            handler = name(*handler), %event, timeout_ms,
            "a handler did not answer in time, and hanging_handlers_max others hang already: its place stays taken until it returns"
        ),
        Note::Overdue { handler, event } => tracing::warn!(
            handler = name(*handler), %event,
            "a handler has outlived its lease and still runs: it can commit nothing, and keeps its place; a timeout_ms would replace it"
        ),
        Note::CutByStop { handler, event } => tracing::warn!(
            handler = name(*handler), %event, "a handler still ran when the grace time of the stop was over: its event is given back"
        ),
        Note::Returned { handler, event, after_ms } => tracing::info!(
            handler = name(*handler), %event, after_ms, "a handler that was cut off has returned"
        ),
        Note::Snoozed { handler, event, snoozes, until, reason } => tracing::info!(
            handler = name(*handler), %event, snoozes, %until, reason, "a handler snoozed an event"
        ),
        Note::Discarded { handler, event, reason } => tracing::warn!(
            handler = name(*handler), %event, reason, "a handler discarded an event"
        ),
        Note::Paused { handler, paused: true } => {
            tracing::warn!(handler = name(*handler), "a handler was paused from outside");
        }
        Note::Paused { handler, paused: false } => {
            tracing::info!(handler = name(*handler), "a handler goes on");
        }
        Note::UnusedSettings { id } => {
            tracing::warn!(
                handler = id,
                "the configuration has settings for a handler that this session does not run"
            );
        }
        Note::Stranded { handler, stream, offset, due } => tracing::warn!(
            handler = name(*handler), %stream, %offset, %due, "a claim ends too far ahead, it is ended now: was the wall clock set back?"
        ),
        Note::Backlog { handler, events } => tracing::warn!(
            handler = name(*handler),
            events,
            "a handler that was never seen before begins with all events that are retained; with from = \"now\" it would begin with new ones"
        ),
        Note::DueSetAside { key } => tracing::error!(
            key,
            "a delayed event that was due cannot be read: its row is kept in the table kv, below quarantine/due/"
        ),
        Note::TooLarge { what, bytes, limit } => {
            tracing::error!(bytes, limit, "not written, the store takes less at once: {what}");
        }
        Note::Fired { schedule, at } => tracing::debug!(schedule, %at, "a schedule fired"),
        Note::ScheduleSkipped { schedule, reason } => {
            tracing::warn!(schedule, reason, "a schedule is left alone");
        }
    }
}
