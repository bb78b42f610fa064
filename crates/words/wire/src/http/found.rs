//! The answer of `GET /topics/{topic}/events` with a filter, an order or all partitions.

use std::fmt::Write;
use std::sync::Arc;

use millrace_model::{Event, Lineage, Partition, TopicName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::envelope::{Shown, write_envelope};
use crate::schema;
use crate::text::push_display;

/// Which events were found, and where to go on. Written by [`write_events_found`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventsFound {
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    /// Absent if all partitions were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::partition")]
    pub partition: Option<Partition>,
    /// Envelopes; with `lineage=true` each with a member `lineage`.
    pub events: Vec<Value>,
    /// Send it as `cursor` to go on; a search in ascending order may go on later with what is published then.
    pub cursor: String,
    /// Events that were looked at.
    pub scanned: u64,
    /// Whether there are events that were not looked at.
    pub more: bool,
    /// Payloads, keys and header values are withheld from the caller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
}

/// Appends an envelope, with its lineage if that was asked for.
pub fn write_found(out: &mut String, event: &Event, with_lineage: bool) {
    write_envelope(out, event, Shown { attempts: 1, payload_sha256: false });
    if with_lineage {
        push_lineage(out, &event.body.lineage);
    }
}

/// Appends the whole document.
pub fn write_events_found(
    out: &mut String,
    topic: &str,
    partition: Option<Partition>,
    events: &[Arc<Event>],
    with_lineage: bool,
    (cursor, scanned, more): (&str, u64, bool),
) {
    push_display(out, format_args!("{{\"topic\":\"{topic}\""));
    if let Some(partition) = partition {
        push_display(out, format_args!(",\"partition\":{partition}"));
    }
    out.push_str(",\"events\":[");
    for (at, event) in events.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_found(out, event, with_lineage);
    }
    // A cursor is made of digits, colons and commas.
    push_display(out, format_args!("],\"cursor\":\"{cursor}\",\"scanned\":{scanned},\"more\":{more}}}"));
}

/// Says in the object that `out` ends with that content was taken away from it.
pub fn mark_withheld(out: &mut String) {
    if out.ends_with('}') {
        out.pop();
        out.push_str(if out.ends_with('{') { "\"withheld\":true}" } else { ",\"withheld\":true}" });
    }
}

/// Adds a member to the object that `out` ends with.
fn push_lineage(out: &mut String, lineage: &Lineage) {
    let text = serde_json::to_string(lineage).unwrap_or_else(|_| "{}".to_owned());
    if out.ends_with('}') {
        out.pop();
        // Writing to a `String` cannot fail.
        let _ = write!(out, ",\"lineage\":{text}}}");
    }
}
