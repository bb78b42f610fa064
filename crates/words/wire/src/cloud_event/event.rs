//! Conversion of a CloudEvent to an event of the bus, and back. Events that were not published as CloudEvents are
//! converted too.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use millrace_model::{Event, EventBody, EventId, Headers, JsonText, Lineage, NewEvent, PRIORITY_DEFAULT};
use sha2::{Digest, Sha256};

use crate::cloud_event::attribute::{self, SPECVERSION};
use crate::cloud_event::json::is_base64;
use crate::cloud_event::{AttributeValue, CE_PREFIX, CloudEvent, CloudEventData};
use crate::error::FrameError;

/// The extension attribute that holds an event's key.
pub(super) const PARTITION_KEY: &str = "partitionkey";
/// Header: the names of attributes whose values JSON writes without quotes.
const PLAIN: &str = "millrace-ce-plain";
/// Header: what the payload is, if it is not the data itself (`none` or `base64`).
const DATA: &str = "millrace-ce-data";
const NO_DATA: &str = "none";
const BASE64: &str = "base64";
/// Extension attribute: headers of the event that are not attributes, as the text of a JSON object.
const HEADERS: &str = "millraceheaders";

impl CloudEvent {
    pub fn into_event(self) -> Result<NewEvent, FrameError> {
        let id = self.event_id()?;
        let key = self.text(PARTITION_KEY).map(Into::into);
        let mut headers = BTreeMap::new();
        let plain: Vec<&str> = self
            .attributes
            .iter()
            .filter(|(_, value)| matches!(value, AttributeValue::Plain(_)))
            .map(|(name, _)| name.as_str())
            .collect();
        if !plain.is_empty() {
            headers.insert(PLAIN.to_owned(), plain.join(","));
        }
        let payload = match self.data {
            CloudEventData::Json(json) => json,
            CloudEventData::None => {
                headers.insert(DATA.to_owned(), NO_DATA.to_owned());
                JsonText::null()
            }
            CloudEventData::Base64(text) => {
                headers.insert(DATA.to_owned(), BASE64.to_owned());
                JsonText::from_value(&text).map_err(FrameError::bad_json)?
            }
        };
        for (name, value) in self.attributes {
            if name != PARTITION_KEY {
                headers.insert(format!("{CE_PREFIX}{name}"), value.as_str().to_owned());
            }
        }
        let body = EventBody {
            key,
            headers: Some(Headers::from_map(&headers)),
            priority: PRIORITY_DEFAULT,
            lineage: Lineage::default(),
            payload,
        };
        Ok(NewEvent { id: Some(id), body: Arc::new(body) })
    }

    /// Returns the id by which duplicates are recognised: source and id. CloudEvents are equal if both are equal, and
    /// two sources may both count from 1, so the id alone would lose events. A source contains no spaces, so the first
    /// space ends it.
    fn event_id(&self) -> Result<EventId, FrameError> {
        let (source, id) = (self.text("source").unwrap_or_default(), self.text("id").unwrap_or_default());
        let both = format!("{source} {id}");
        let readable = EventId::parse(&both);
        readable
            .or_else(|_| {
                // The text is too long or not ASCII, so its digest is used.
                let mut digest = "sha256:".to_owned();
                for byte in Sha256::digest(both.as_bytes()) {
                    let _ = write!(digest, "{byte:02x}");
                }
                EventId::parse(&digest)
            })
            .map_err(|error| FrameError::bad_frame(error.to_string()))
    }

    /// Returns the CloudEvent that was published; for any other event, a CloudEvent that describes it.
    pub fn of_event(event: &Event) -> CloudEvent {
        let mut headers = event.body.headers.as_ref().map(Headers::to_map).unwrap_or_default();
        let data = data(event, &headers);
        let mut attributes = published(&headers);
        if attribute::check(&attributes).is_ok() {
            headers.retain(|name, _| !is_attribute(name) && name != PLAIN && name != DATA);
        } else {
            attributes = described(event);
        }
        let key = event.body.key.as_deref().filter(|key| !key.is_empty() && attribute::is_text(key));
        if let Some(key) = key {
            attributes.insert(PARTITION_KEY.to_owned(), AttributeValue::Text(key.to_owned()));
        }
        let headers = Headers::from_map(&headers);
        if headers.json().as_str() != "{}" {
            let text = AttributeValue::Text(headers.json().as_str().to_owned());
            attributes.entry(HEADERS.to_owned()).or_insert(text);
        }
        CloudEvent { attributes, data }
    }
}

fn is_attribute(header: &str) -> bool {
    header.strip_prefix(CE_PREFIX).is_some_and(attribute::is_name)
}

/// Returns the attributes in the headers. They need not be a complete CloudEvent.
fn published(headers: &BTreeMap<String, String>) -> BTreeMap<String, AttributeValue> {
    let plain = headers.get(PLAIN).map_or("", String::as_str);
    let value = |name: &str, text: &str| {
        let value =
            plain.split(',').any(|plain| plain == name).then(|| AttributeValue::plain(text)).flatten();
        value.unwrap_or_else(|| AttributeValue::Text(text.to_owned()))
    };
    let named = headers.iter().filter(|(name, _)| is_attribute(name));
    named
        .map(|(name, text)| (&name[CE_PREFIX.len()..], text))
        .map(|(name, text)| (name.to_owned(), value(name, text)))
        .collect()
}

fn data(event: &Event, headers: &BTreeMap<String, String>) -> CloudEventData {
    let payload = &event.body.payload;
    let text = || serde_json::from_str::<String>(payload.as_str()).ok().filter(|text| is_base64(text));
    match headers.get(DATA).map(String::as_str) {
        Some(NO_DATA) if payload.as_str() == "null" => CloudEventData::None,
        Some(BASE64) => text().map_or_else(|| CloudEventData::Json(payload.clone()), CloudEventData::Base64),
        _ => CloudEventData::Json(payload.clone()),
    }
}

/// Returns the attributes of an event that is not a CloudEvent: source and type come from its topic. The offset is
/// text, because it needs more than the 32 bits of a CloudEvents integer.
fn described(event: &Event) -> BTreeMap<String, AttributeValue> {
    let topic = &event.stream.topic;
    let source = format!("/namespaces/{}/topics/{}", topic.namespace(), topic.topic());
    let text = [
        ("specversion", SPECVERSION.to_owned()),
        ("id", event.id.to_string()),
        ("source", source),
        ("type", topic.topic().to_owned()),
        ("time", event.ts.to_string()),
        ("datacontenttype", "application/json".to_owned()),
        ("offset", event.offset.to_string()),
    ];
    let text = text.into_iter().map(|(name, value)| (name.to_owned(), AttributeValue::Text(value)));
    let partition = ("partition".to_owned(), AttributeValue::Plain(event.stream.partition.to_string()));
    text.chain([partition]).collect()
}

/// Appends an event of the bus in the JSON format.
pub fn write_cloud_event(out: &mut String, event: &Event) {
    CloudEvent::of_event(event).write(out);
}
