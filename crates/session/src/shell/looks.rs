//! What the engine asks about the store, and what it has to say to people.

use millrace_claims::{Look, Note, Seen, StreamSpan};
use millrace_model::TopicKey;
use millrace_store::{KeyRange, Retention, Store, StoreError};

/// `None` when it could not be read: the engine asks again later.
pub(super) fn look(store: &dyn Store, look: &Look) -> Option<Seen> {
    try_look(store, look)
        .inspect_err(|error| tracing::warn!(%error, "the store could not be read, it will be tried again"))
        .ok()
}

pub(crate) fn try_look(store: &dyn Store, look: &Look) -> Result<Seen, StoreError> {
    match look {
        Look::Rows { space, from, to, rows_max } => {
            let range = KeyRange { from: from.clone(), to: Some(to.clone()) };
            let rows = store.scan(*space, &range, *rows_max);
            rows.map(|rows| Seen::Rows(rows.into_iter().map(|row| (row.key, row.value)).collect()))
        }
        Look::Streams { namespace, topic } => streams(store, namespace.as_str(), topic.as_ref()),
        Look::RetentionStart { stream, older_than, bytes_max } => {
            let rule = Retention { older_than: *older_than, bytes_max: *bytes_max };
            store.retention_start(stream, rule).map(Seen::Start)
        }
    }
}

fn streams(store: &dyn Store, namespace: &str, topic: Option<&TopicKey>) -> Result<Seen, StoreError> {
    let wanted = |found: &TopicKey| topic.map_or(found.namespace() == namespace, |topic| topic == found);
    let spans = store.streams()?.into_iter().filter(|bounds| wanted(&bounds.stream.topic));
    let spans =
        spans.map(|bounds| StreamSpan { stream: bounds.stream, start: bounds.start, next: bounds.next });
    Ok(Seen::Streams(spans.collect()))
}

pub(super) fn say(note: &Note, handlers: &[crate::Handler]) {
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
        Note::TooLarge { what, bytes, limit } => {
            tracing::error!(bytes, limit, "not written, the store takes less at once: {what}");
        }
        Note::Fired { schedule, at } => tracing::debug!(schedule, %at, "a schedule fired"),
        Note::ScheduleSkipped { schedule, reason } => {
            tracing::warn!(schedule, reason, "a schedule is left alone");
        }
    }
}
