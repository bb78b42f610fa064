//! Answers the questions of the `claims` engine about the store: those of the actions in this crate, and those of the
//! workers of a session.

use millrace_claims::{Look, Seen, StreamSpan};
use millrace_model::TopicKey;
use millrace_store::{KeyRange, Retention, Store, StoreError};

/// Reads what the engine asks for.
pub fn look(store: &dyn Store, look: &Look) -> Result<Seen, StoreError> {
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
    let spans = spans.map(|bounds| StreamSpan {
        stream: bounds.stream,
        start: bounds.start,
        next: bounds.next,
        last_ts: bounds.last_ts,
    });
    Ok(Seen::Streams(spans.collect()))
}
