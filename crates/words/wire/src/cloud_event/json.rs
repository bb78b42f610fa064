//! CloudEvents in the JSON format: one object, or an array of them.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use millrace_model::{JSON_DEPTH_MAX, JsonText};
use serde_json::value::RawValue;

use crate::cloud_event::{AttributeValue, CloudEvent, CloudEventData};
use crate::error::{FrameError, shown};
use crate::fields::{each_element, text_of};
use crate::text::{push_json_member, push_string, push_string_member};

/// Parses one event (the structured mode of HTTP).
pub fn parse_cloud_event(text: &str) -> Result<CloudEvent, FrameError> {
    read(document(text)?)
}

/// Parses a batch: a JSON array of events.
pub fn parse_cloud_events(text: &str) -> Result<Vec<CloudEvent>, FrameError> {
    let raw = document(text)?;
    let mut events = Vec::new();
    let take = |at, element: &RawValue| {
        if !element.get().starts_with('{') {
            return Err(FrameError::bad_frame(format!("events[{at}] is no object: it must be a CloudEvent")));
        }
        events.push(read(element).map_err(|error| error.inside(format_args!("events[{at}]")))?);
        Ok(())
    };
    match each_element(raw, take) {
        Some(read) => read.map(|()| events),
        None => Err(FrameError::bad_frame("a batch of CloudEvents is a JSON array of them")),
    }
}

fn document(text: &str) -> Result<&RawValue, FrameError> {
    if !JsonText::depth_is_fine(text) {
        return Err(FrameError::bad_json(format_args!("nested more than {JSON_DEPTH_MAX} levels deep")));
    }
    serde_json::from_str(text).map_err(FrameError::bad_json)
}

fn read(raw: &RawValue) -> Result<CloudEvent, FrameError> {
    let Ok(members) = serde_json::from_str::<BTreeMap<String, &RawValue>>(raw.get()) else {
        return Err(FrameError::bad_frame("a CloudEvent is a JSON object of its attributes and data"));
    };
    let mut attributes = BTreeMap::new();
    let (mut json, mut base64) = (None, None);
    for (name, raw) in members {
        match name.as_str() {
            "data" => json = Some(raw),
            "data_base64" if raw.get() != "null" => base64 = Some(raw),
            _ if raw.get() == "null" => {}
            _ => {
                let value = text_of(raw).map(|text| AttributeValue::Text(text.into_owned()));
                let value = value.or_else(|| AttributeValue::plain(raw.get())).ok_or_else(|| {
                    let expected = "a string, true, false or a whole number of 32 bits";
                    let (name, found) = (shown(&name), shown(raw.get()));
                    FrameError::bad_frame(format!("attribute {name:?} is {found}: it must be {expected}"))
                })?;
                attributes.insert(name, value);
            }
        }
    }
    let data = match (json.filter(|raw| base64.is_none() || raw.get() != "null"), base64) {
        (Some(_), Some(_)) => {
            return Err(FrameError::bad_frame("data and data_base64 are both given: give one of them"));
        }
        (Some(raw), None) => CloudEventData::Json(JsonText::from_checked(raw)),
        (None, Some(raw)) => CloudEventData::Base64(
            text_of(raw).filter(|text| is_base64(text)).map(Into::into).ok_or_else(|| {
                FrameError::bad_frame("data_base64 is wrong: it must be a string of base64 with its padding")
            })?,
        ),
        (None, None) => CloudEventData::None,
    };
    CloudEvent::new(attributes, data)
}

pub(super) fn is_base64(text: &str) -> bool {
    BASE64_STANDARD.decode(text).is_ok()
}

impl CloudEvent {
    /// Appends the event in the JSON format.
    pub fn write(&self, out: &mut String) {
        out.push_str("{\"specversion\":");
        push_string(out, super::attribute::SPECVERSION);
        for (name, value) in self.attributes.iter().filter(|(name, _)| *name != "specversion") {
            match value {
                AttributeValue::Text(text) => push_string_member(out, name, text),
                AttributeValue::Plain(json) => push_json_member(out, name, json),
            }
        }
        match &self.data {
            CloudEventData::None => {}
            CloudEventData::Json(json) => push_json_member(out, "data", json.as_str()),
            CloudEventData::Base64(text) => push_string_member(out, "data_base64", text),
        }
        out.push('}');
    }
}
