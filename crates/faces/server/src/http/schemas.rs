//! The versions of a topic's schema, read from the store.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_bus::{Compared, Reply, Request, SchemaView};
use millrace_model::{RowError, Space, TopicKey, TopicSchemaRow, keys};
use millrace_store::{KeyRange, Store, StoreError, each_row};
use millrace_wire::ErrorCode;
use millrace_wire::http::{SchemaDoc, SchemaList};

use crate::access::Caller;
use crate::app::SharedApp;
use crate::edge::Edge;
use crate::http::{damaged_name, document};
use crate::params::{AtTopic, Params};
use crate::refusal::Refusal;
use crate::to_wire;

/// Lists all versions that are kept, or with `?version=` that one.
pub(crate) async fn list(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtTopic,
) -> Result<Response, Refusal> {
    let wanted = wanted(&at.params)?;
    let describe = Request::DescribeTopic { topic: at.topic.clone() };
    let view = match app.request(caller.by_unless_admin(), describe).await? {
        Reply::Topic { topic, .. } => topic,
        other => return Err(Refusal::unexpected(&other)),
    };
    of(&app.edge, app.store.clone(), &at.topic, view.schema, wanted).await
}

/// The version that a request asks for; `None` for all.
pub(crate) fn wanted(params: &Params) -> Result<Option<u32>, Refusal> {
    Ok(params.number("version", 1..=u64::from(u32::MAX))?.map(|version| version as u32))
}

/// The versions of a topic whose schema is `schema`, as the store has them.
pub(crate) async fn of(
    edge: &Edge,
    store: Arc<dyn Store>,
    key: &TopicKey,
    schema: Option<SchemaView>,
    wanted: Option<u32>,
) -> Result<Response, Refusal> {
    let topic = to_wire::topic_name(key).map_err(|error| damaged_name(&error))?;
    let SchemaView { incarnation, version: current, .. } = match schema {
        Some(schema) => schema,
        None => SchemaView { incarnation: 0, version: None, checked: Compared::default() },
    };
    let range = KeyRange::prefix(&keys::schema_versions(key, incarnation));
    let rows = edge.read(store, move |store| {
        let mut rows = Vec::new();
        each_row(store, Space::Kv, range, |row| rows.push(row))?;
        Ok::<_, StoreError>(rows)
    });
    let rows = rows.await?.into_iter().map(|row| TopicSchemaRow::decode(&row.key, &row.value));
    let rows = rows.collect::<Result<Vec<_>, RowError>>();
    let rows = rows.map_err(|error| Refusal::new(ErrorCode::StorageFailed, error.to_string()))?;
    let rows = rows.into_iter().filter(|row| wanted.is_none_or(|wanted| row.version == wanted));
    let versions: Vec<SchemaDoc> = rows.map(shown).collect();
    if let (Some(wanted), true) = (wanted, versions.is_empty()) {
        let detail =
            format!("there is no version {wanted} of the schema of topic {topic}, or it is not kept");
        return Err(Refusal::new(ErrorCode::BadTopic, detail).status(StatusCode::NOT_FOUND));
    }
    Ok(document(StatusCode::OK, &SchemaList { topic, current, versions }))
}

fn shown(row: TopicSchemaRow) -> SchemaDoc {
    let TopicSchemaRow { version, set, forced, schema } = row;
    SchemaDoc { version, set, forced, schema }
}
