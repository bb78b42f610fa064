//! Reads the store for the `claims` engine: for the actions in this crate, and for the workers of a session.

use millrace_claims::{ReadQuery, ReadResult, StreamSpan};
use millrace_model::TopicKey;
use millrace_store::{KeyRange, Retention, Store, StoreError};

/// Reads what the engine asks for.
pub fn read(store: &dyn Store, query: &ReadQuery) -> Result<ReadResult, StoreError> {
    match query {
        ReadQuery::Rows { space, from, to, rows_max } => {
            let range = KeyRange { from: from.clone(), to: Some(to.clone()) };
            let rows = store.scan(*space, &range, *rows_max);
            rows.map(|rows| ReadResult::Rows(rows.into_iter().map(|row| (row.key, row.value)).collect()))
        }
        ReadQuery::Streams { namespace, topic } => streams(store, namespace.as_str(), topic.as_ref()),
        ReadQuery::RetentionStart { stream, older_than, bytes_max } => {
            let rule = Retention { older_than: *older_than, bytes_max: *bytes_max };
            store.retention_start(stream, rule).map(ReadResult::Start)
        }
    }
}

fn streams(store: &dyn Store, namespace: &str, topic: Option<&TopicKey>) -> Result<ReadResult, StoreError> {
    let wanted = |found: &TopicKey| topic.map_or(found.namespace() == namespace, |topic| topic == found);
    let spans = store.streams()?.into_iter().filter(|bounds| wanted(&bounds.stream.topic));
    let spans = spans.map(|bounds| StreamSpan {
        stream: bounds.stream,
        start: bounds.start,
        next: bounds.next,
        last_ts: bounds.last_ts,
    });
    Ok(ReadResult::Streams(spans.collect()))
}
