//! Which events a search or a tail wants: by key, header, text or a value inside the payload.

use std::borrow::Cow;
use std::collections::HashMap;

use millrace_model::{Event, Headers};
use millrace_wire::ErrorCode;
use serde_json::value::RawValue;

use crate::params::Params;
use crate::refusal::Refusal;

/// Longest text that is searched for, and most steps of a path.
const TEXT_BYTES_MAX: usize = 1024;
const STEPS_MAX: usize = 32;

/// All conditions that are given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventFilter {
    key: Option<String>,
    header: Option<(String, String)>,
    contains: Option<String>,
    path: Option<(Vec<String>, String)>,
}

impl EventFilter {
    pub(crate) fn of(params: &Params) -> Result<EventFilter, Refusal> {
        let bad = |detail: String| Refusal::new(ErrorCode::BadFrame, detail);
        let text = |name: &str| match params.text(name) {
            Some(text) if text.len() > TEXT_BYTES_MAX => Err(bad(format!(
                "{name} has {} bytes: at most {TEXT_BYTES_MAX} are searched for",
                text.len()
            ))),
            text => Ok(text.map(str::to_owned)),
        };
        let header = text("header")?
            .map(|text| {
                let (name, value) = text
                    .split_once(':')
                    .ok_or_else(|| bad(format!("header is {text:.80?}: it must be NAME:VALUE")))?;
                Ok::<_, Refusal>((name.to_owned(), value.to_owned()))
            })
            .transpose()?;
        let path = text("path")?.map(|text| path_of(&text)).transpose()?;
        Ok(EventFilter { key: text("key")?, header, contains: text("contains")?, path })
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == EventFilter::default()
    }

    pub(crate) fn wants(&self, event: &Event) -> bool {
        let body = &event.body;
        if self.key.as_deref().is_some_and(|key| body.key.as_deref() != Some(key)) {
            return false;
        }
        if let Some((name, value)) = &self.header
            && body.headers.as_ref().and_then(|headers| headers.get(name)).as_ref() != Some(value)
        {
            return false;
        }
        if let Some(text) = &self.contains {
            let in_headers = |headers: &Headers| headers.json().as_str().contains(text);
            let found = body.payload.as_str().contains(text)
                || body.key.as_deref().is_some_and(|key| key.contains(text.as_str()))
                || body.headers.as_ref().is_some_and(in_headers);
            if !found {
                return false;
            }
        }
        let Some((steps, wanted)) = &self.path else { return true };
        let Ok(payload) = serde_json::from_str::<&RawValue>(body.payload.as_str()) else { return false };
        find(payload, steps).is_some_and(|found| is_value(found, wanted))
    }
}

/// `$.a.b:VALUE`; a step into an array is its number.
fn path_of(text: &str) -> Result<(Vec<String>, String), Refusal> {
    let bad = || {
        let detail = format!("path is {text:.80?}: it must be $.a.b:VALUE, with at most {STEPS_MAX} steps");
        Refusal::new(ErrorCode::BadFrame, detail)
    };
    let (path, value) = text.split_once(':').ok_or_else(bad)?;
    let steps = path.strip_prefix("$.").ok_or_else(bad)?;
    let steps: Vec<String> = steps.split('.').map(str::to_owned).collect();
    let fine = steps.len() <= STEPS_MAX && steps.iter().all(|step| !step.is_empty());
    fine.then(|| (steps, value.to_owned())).ok_or_else(bad)
}

fn find<'a>(mut at: &'a RawValue, steps: &[String]) -> Option<&'a RawValue> {
    for step in steps {
        at = match at.get().as_bytes().first()? {
            b'{' => {
                let members: HashMap<Cow<'a, str>, &'a RawValue> = serde_json::from_str(at.get()).ok()?;
                members.get(step.as_str()).copied()?
            }
            b'[' => {
                let elements: Vec<&'a RawValue> = serde_json::from_str(at.get()).ok()?;
                elements.get(step.parse::<usize>().ok()?).copied()?
            }
            _ => return None,
        };
    }
    Some(at)
}

/// Whether the value is the text as it is written, or a string of it: numbers keep all their digits.
fn is_value(found: &RawValue, wanted: &str) -> bool {
    let text = found.get();
    text == wanted
        || (text.starts_with('"') && serde_json::from_str::<String>(text).is_ok_and(|text| text == wanted))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use axum::http::Uri;
    use millrace_model::{EventBody, EventId, JsonText, Offset, Partition, Timestamp, TopicKey};

    fn event(payload: &str, key: Option<&str>, headers: &[(&str, &str)]) -> Event {
        let map = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let body = EventBody {
            key: key.map(Into::into),
            headers: (!headers.is_empty()).then(|| Headers::from_map(&map)),
            ..EventBody::of(JsonText::parse(payload).unwrap())
        };
        Event {
            stream: TopicKey::parse("default/t").unwrap().stream(Partition(0)),
            offset: Offset(1),
            ts: Timestamp(1),
            id: EventId::parse("e").unwrap(),
            body: Arc::new(body),
        }
    }

    fn filter(query: &str) -> Result<EventFilter, Refusal> {
        let uri: Uri = format!("/t?{query}").parse().unwrap();
        EventFilter::of(&Params::of_uri(&uri).unwrap())
    }

    #[test]
    fn every_condition_must_hold() {
        let event =
            event(r#"{"a":{"b":[1,{"c":"x y"}]},"n":12345678901234567890}"#, Some("k"), &[("h", "v:w")]);
        for (query, wanted) in [
            ("", true),
            ("key=k", true),
            ("key=l", false),
            ("header=h:v:w", true),
            ("header=h:v", false),
            ("contains=x%20y", true),
            ("contains=v:w", true),
            ("contains=nothing", false),
            ("path=$.a.b.1.c:x%20y", true),
            ("path=$.a.b.0:1", true),
            ("path=$.n:12345678901234567890", true),
            ("path=$.n:12345678901234567000", false),
            ("path=$.a.z:1", false),
            ("key=k&path=$.a.z:1", false),
        ] {
            assert_eq!(filter(query).unwrap().wants(&event), wanted, "{query}");
        }
    }

    #[test]
    fn conditions_that_cannot_be_read_are_refused() {
        let long = format!("contains={}", "x".repeat(TEXT_BYTES_MAX + 1));
        for query in ["header=h", "path=a.b:1", "path=$.a", "path=$..a:1", "path=$.:1", &long] {
            assert!(filter(query).is_err(), "{query}");
        }
    }
}
