//! The binary mode of HTTP: attributes are headers, the body is the data.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use millrace_model::JsonText;

use crate::cloud_event::{AttributeValue, CloudEvent, CloudEventData};
use crate::error::{FrameError, shown};
use crate::http::body_text;

impl CloudEvent {
    /// Reads a CloudEvent from headers (names without `ce-`, values as received) and the body with its content type.
    pub fn from_binary<'a>(
        headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
        content_type: Option<&str>,
        body: &[u8],
    ) -> Result<CloudEvent, FrameError> {
        let mut attributes = BTreeMap::new();
        for (name, value) in headers {
            let text = unquote(value).ok_or_else(|| {
                FrameError::bad_frame(format!("header ce-{} is not percent-encoded UTF-8", shown(name)))
            })?;
            if name == "datacontenttype" {
                let message =
                    "header ce-datacontenttype is given: in binary mode it is the header content-type";
                return Err(FrameError::bad_frame(message));
            }
            if attributes.insert(name.to_owned(), AttributeValue::Text(text)).is_some() {
                return Err(FrameError::bad_frame(format!("header ce-{} is given twice", shown(name))));
            }
        }
        if let Some(kind) = content_type {
            attributes.insert("datacontenttype".to_owned(), AttributeValue::Text(kind.to_owned()));
        }
        CloudEvent::new(attributes, data(content_type, body)?)
    }
}

/// Converts a body: JSON stays JSON, text becomes a JSON string, everything else base64.
fn data(content_type: Option<&str>, body: &[u8]) -> Result<CloudEventData, FrameError> {
    if body.is_empty() {
        return Ok(CloudEventData::None);
    }
    let kind =
        content_type.map(|kind| kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
    let is = |test: fn(&str) -> bool| kind.as_deref().is_some_and(test);
    // CloudEvents says that data without a type is JSON.
    if kind.is_none() || is(|kind| kind.ends_with("/json") || kind.ends_with("+json")) {
        let json = JsonText::parse(body_text(body)?).map_err(|error| match error {
            millrace_model::JsonError::Syntax(error) => FrameError::bad_json(error),
            error @ millrace_model::JsonError::TooDeep => FrameError::bad_json(error),
        })?;
        return Ok(CloudEventData::Json(json));
    }
    if is(|kind| kind.starts_with("text/") || kind.ends_with("/xml") || kind.ends_with("+xml"))
        && let Ok(text) = std::str::from_utf8(body)
        && let Ok(json) = JsonText::from_value(&text)
    {
        return Ok(CloudEventData::Json(json));
    }
    Ok(CloudEventData::Base64(BASE64_STANDARD.encode(body)))
}

/// Returns a header's value as text: quotes are removed, then percent-escapes are decoded once. `None` when the result
/// is not UTF-8 or an escape is incomplete.
fn unquote(value: &[u8]) -> Option<String> {
    let value = value.trim_ascii();
    let inner = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = inner.unwrap_or(value).iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' if inner.is_some() => bytes.push(*rest.next()?),
            b'%' => {
                let digits = [*rest.next()?, *rest.next()?];
                let digits = std::str::from_utf8(&digits).ok().filter(|text| !text.starts_with('+'))?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
            }
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).ok()
}
