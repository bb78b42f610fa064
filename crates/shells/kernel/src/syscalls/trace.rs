//! `Syscall.Trace`: the messages of a correlation that the loop has recorded, in pages, because a reply is one line.

use millrace_model::{OsFault, OsId};
use millrace_router::{TraceQuery, TraceRecord, TraceStep};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::capabilities::capability::{Capability, HandlerPlace};
use crate::capabilities::context::Context;

/// Records read for one page.
const PAGE_RECORDS_MAX: usize = 256;

#[derive(Deserialize)]
struct Asks {
    correlation: Option<String>,
    id: Option<String>,
    after: Option<u64>,
}

pub(super) fn trace(line_bytes_max: usize) -> Capability {
    let page_bytes = super::page_bytes(line_bytes_max);
    Capability::new("Trace", "Recent trace of the loop").place(HandlerPlace::Kernel).query(
        "Syscall.Trace",
        "The messages of a correlation, or those that followed from one message, oldest first",
        json!({
            "type": "object",
            "properties": {
                "correlation": { "type": ["string", "null"], "description": "All messages of this correlation" },
                "id": { "type": ["string", "null"], "description": "The message of this id and its consequences" },
                "after": { "type": ["integer", "null"], "minimum": 0, "description": "`next` of the page before" },
            },
        }),
        move |ctx, _| async move { page(&ctx, page_bytes).await },
    )
    .answers(json!({
        "type": "object",
        "properties": {
            "records": { "type": "array", "items": { "type": "object" } },
            "next": { "type": "integer", "description": "There is more: ask again with `after`" },
        },
        "required": ["records"],
    }))
}

async fn page(ctx: &Context, page_bytes: usize) -> Result<millrace_model::JsonText, OsFault> {
    let asks: Asks = ctx.data()?;
    let id = |text: &str| {
        OsId::new(text).map_err(|error| OsFault::new(422, format!("Schema validation failed: {error}")))
    };
    let query = match (&asks.correlation, &asks.id) {
        (Some(correlation), None) => TraceQuery::Correlation(id(correlation)?),
        (None, Some(message)) => TraceQuery::Id(id(message)?),
        _ => return Err(OsFault::new(422, "Schema validation failed: give either correlation or id")),
    };
    let after = asks.after.unwrap_or(0);
    // Capabilities, and clients that access control does not apply to, see records of all namespaces.
    let from = ctx.principal().and_then(|by| by.namespaces.clone());
    let read =
        move |router: &millrace_router::Router| router.trace(&query, after, PAGE_RECORDS_MAX + 1, &from);
    let found = ctx.kernel().with_router(read).await.map_err(|ended| OsFault::new(503, ended.to_string()))?;
    let (mut records, mut bytes, mut next) = (Vec::new(), 0, None);
    for record in &found {
        let shown = shown(record);
        bytes += shown.to_string().len() + 1;
        // A page has at least one record, or paging would never end.
        if records.len() == PAGE_RECORDS_MAX || (bytes > page_bytes && !records.is_empty()) {
            break;
        }
        next = Some(record.number);
        records.push(shown);
    }
    let mut answer = json!({ "records": records });
    if let Some(next) = next.filter(|_| answer["records"].as_array().map_or(0, Vec::len) < found.len()) {
        answer["next"] = next.into();
    }
    ctx.reply(&answer)
}

/// A record as JSON, for `Syscall.Trace` and for the stored trace.
pub(crate) fn shown(record: &TraceRecord) -> Value {
    let mut shown = json!({
        "number": record.number,
        "at": record.at.0,
        "from": record.from.to_string(),
        "kind": record.kind.as_str(),
        "type": record.ty.as_str(),
        "id": record.id.as_str(),
    });
    let text = |id: &Option<OsId>| id.as_ref().map(|id| id.as_str().to_owned());
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            shown[name] = value;
        }
    };
    put("causation", text(&record.causation).map(Value::from));
    put("correlation", text(&record.correlation).map(Value::from));
    put("code", record.code.map(Value::from));
    put("data", (!record.data.is_empty()).then(|| Value::from(&*record.data)));
    put("step", Some(record.step.as_str().into()));
    match &record.step {
        TraceStep::Routed { to } => put("to", Some(to.iter().map(|name| Value::from(&**name)).collect())),
        TraceStep::Refused { code } => put("code", Some((*code).into())),
        TraceStep::Answered { to } => put("to", Some(Value::from(vec![to.to_string()]))),
        TraceStep::Orphan | TraceStep::Faulty => {}
    }
    shown
}
