//! `millrace events inspect`: one event in full.

use millrace_admin::{ClaimView, EventView};
use millrace_model::{EventId, Timestamp};
use serde_json::{Map, Value, json};

use super::EventsCall;
use crate::failure::Failure;

impl EventsCall {
    pub(super) fn inspect(mut self, id: &EventId) -> Result<(), Failure> {
        let found = self.admin.inspect(self.namespace.as_ref(), id, self.now)?;
        let view = found.ok_or_else(|| Failure::Failed(format!("there is no event {id}")))?;
        let document = document(&view);
        if self.json {
            return self.finish_json(&document);
        }
        let text =
            serde_json::to_string_pretty(&document).map_err(|error| Failure::Failed(error.to_string()))?;
        self.out.document(&text)
    }
}

fn document(view: &EventView) -> Value {
    let event = &view.event;
    let lineage = &event.body.lineage;
    let headers = event.body.headers.as_ref().map(|headers| headers.to_map());
    json!({
        "id": event.id,
        "namespace": event.stream.topic.namespace(),
        "type": event.stream.topic.topic(),
        "partition": event.stream.partition,
        "offset": event.offset,
        "key": event.body.key,
        "headers": headers,
        "payload": serde_json::from_str::<Value>(event.body.payload.as_str()).unwrap_or(Value::Null),
        "created_at": event.ts.to_string(),
        "priority": event.body.priority,
        "root_event_id": view.root(),
        "chain_depth": lineage.depth,
        "causation_id": lineage.causation,
        "status": view.status(),
        "owed_by": view.owing().map(|claim| claim.handler_id.as_str()).collect::<Vec<_>>(),
        "claims": view.claims.iter().map(claim).collect::<Vec<Value>>(),
    })
}

/// Returns a claim as JSON, without the fields that have no value.
pub(super) fn claim(claim: &ClaimView) -> Value {
    let mut out = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        out.extend(value.map(|value| (name.to_owned(), value)));
    };
    let time = |at: Option<Timestamp>| at.map(|at| json!(at.to_string()));
    put("handler_id", Some(json!(claim.handler_id)));
    put("status", Some(json!(claim.status)));
    put("session_id", claim.session_id.as_ref().map(|id| json!(id)));
    put("attempts", Some(json!(claim.attempts)));
    put("snoozes", (claim.snoozes > 0).then(|| json!(claim.snoozes)));
    put("last_error", claim.last_error.as_ref().map(|error| json!(error)));
    put("claimed_at", time(claim.claimed_at));
    put("lease_until", time(claim.lease_until));
    put("available_at", time(claim.available_at));
    put("ack_at", time(claim.ack_at));
    put("dead_lettered_at", time(claim.dead_lettered_at));
    put("discarded_at", time(claim.discarded_at));
    Value::Object(out)
}
