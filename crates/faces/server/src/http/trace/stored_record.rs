//! A record of the loop's trace as `--trace-store` keeps it, read back.

use std::sync::Arc;

use millrace_model::{OsId, OsKind, OsType, Timestamp};
use millrace_router::{Party, TraceRecord, TraceStep};
use serde::Deserialize;

#[derive(Deserialize)]
struct StoredRecord {
    number: u64,
    at: u64,
    from: String,
    kind: String,
    #[serde(rename = "type")]
    ty: String,
    id: String,
    causation: Option<String>,
    correlation: Option<String>,
    code: Option<u16>,
    step: String,
    #[serde(default)]
    to: Vec<String>,
}

/// Returns `None` for a text that is no record of this version.
pub(super) fn read(text: &str) -> Option<TraceRecord> {
    let stored: StoredRecord = serde_json::from_str(text).ok()?;
    let id = |text: Option<String>| text.and_then(|text| OsId::new(&text).ok());
    let to = || stored.to.first().map_or(Party::Loop, |to| party(to));
    let step = match stored.step.as_str() {
        "routed" => TraceStep::Routed { to: stored.to.iter().map(|to| Arc::from(to.as_str())).collect() },
        "refused" => TraceStep::Refused { code: stored.code.unwrap_or_default() },
        "answered" => TraceStep::Answered { to: to() },
        "orphan" => TraceStep::Orphan,
        "faulty" => TraceStep::Faulty,
        _ => return None,
    };
    Some(TraceRecord {
        number: stored.number,
        at: Timestamp(stored.at),
        from: party(&stored.from),
        step,
        kind: OsKind::parse(&stored.kind)?,
        ty: OsType::new(&stored.ty).ok()?,
        id: OsId::new(&stored.id).ok()?,
        causation: id(stored.causation),
        correlation: id(stored.correlation),
        code: stored.code,
        data: String::new(),
        namespaces: None,
    })
}

fn party(text: &str) -> Party {
    match text {
        "bus" => Party::Bus,
        "timer" => Party::Timer,
        "loop" => Party::Loop,
        // The number of a client of an earlier process says nothing any more; as a name it is shown as it was.
        name => Party::Capability(name.into()),
    }
}
