//! CloudEvents 1.0, a common format for events of different systems: in the JSON format and in the binary mode of HTTP.
//!
//! Inside the bus a CloudEvent is an event whose attributes are headers named `ce-ATTRIBUTE`, as in other protocol
//! bindings of CloudEvents, so subscribers on the WebSocket see them too. `docs/cloudevents.md` has the mapping.

mod attribute;
mod binary;
mod event;
mod json;

pub use event::write_cloud_event;
pub use json::{parse_cloud_event, parse_cloud_events};

use std::borrow::Cow;
use std::collections::BTreeMap;

use millrace_model::JsonText;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

pub(crate) use attribute::AttributeValue;

use crate::error::FrameError;

pub const CLOUD_EVENT: &str = "application/cloudevents+json";
pub const CLOUD_EVENTS: &str = "application/cloudevents-batch+json";
/// Prefix of an attribute's name as a header, of an HTTP request and of an event.
pub const CE_PREFIX: &str = "ce-";

/// A valid CloudEvent: [`CloudEvent::new`] checks the rules of the specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudEvent {
    attributes: BTreeMap<String, AttributeValue>,
    data: CloudEventData,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CloudEventData {
    /// No data, which is different from `null`.
    None,
    Json(JsonText),
    /// Valid base64, as it was written.
    Base64(String),
}

impl JsonSchema for CloudEvent {
    fn schema_name() -> Cow<'static, str> {
        "CloudEvent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let text = serde_json::json!({"type": "string", "minLength": 1});
        json_schema!({
            "type": "object",
            "properties": {
                "specversion": {"const": "1.0"}, "id": text, "source": text, "type": text, "subject": text,
                "time": {"type": "string", "format": "date-time"}, "datacontenttype": text, "dataschema": text,
                "partitionkey": {"type": "string", "minLength": 1, "description": "The event's key."},
                "data": {}, "data_base64": {"type": "string", "contentEncoding": "base64"},
            },
            "required": ["specversion", "id", "source", "type"],
            "additionalProperties": {"type": ["string", "boolean", "integer", "null"]},
            "propertyNames": {"anyOf": [{"pattern": "^[a-z0-9]+$"}, {"const": "data_base64"}]},
            "not": {"required": ["data", "data_base64"]},
        })
    }
}

impl CloudEvent {
    pub(crate) fn new(
        attributes: BTreeMap<String, AttributeValue>,
        data: CloudEventData,
    ) -> Result<CloudEvent, FrameError> {
        attribute::check(&attributes)?;
        Ok(CloudEvent { attributes, data })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(AttributeValue::as_str)
    }
}
