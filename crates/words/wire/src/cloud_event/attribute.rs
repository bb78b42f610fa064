//! Attributes: their names, the kinds of values they have, and what the specification asks of each.

use std::collections::BTreeMap;

use crate::error::{FrameError, shown};

/// The only version of CloudEvents that is supported.
pub(super) const SPECVERSION: &str = "1.0";
const REQUIRED: &[&str] = &["specversion", "id", "source", "type"];
/// Attributes that the specification says are strings; extensions may be anything.
const STRINGS: &[&str] = &[
    "specversion",
    "id",
    "source",
    "type",
    "subject",
    "time",
    "datacontenttype",
    "dataschema",
    super::event::PARTITION_KEY,
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttributeValue {
    Text(String),
    /// `true`, `false` or a whole number, which JSON writes without quotes.
    Plain(String),
}

impl AttributeValue {
    pub(super) fn as_str(&self) -> &str {
        match self {
            AttributeValue::Text(text) | AttributeValue::Plain(text) => text,
        }
    }

    /// Returns `None` for a value that no attribute can have: a fraction, an array, an object, an integer of more than
    /// 32 bits.
    pub(super) fn plain(json: &str) -> Option<AttributeValue> {
        let is_plain =
            matches!(json, "true" | "false") || json.parse::<i32>().is_ok_and(|n| n.to_string() == json);
        is_plain.then(|| AttributeValue::Plain(json.to_owned()))
    }
}

pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name != "data" && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'))
}

/// Whether an attribute may hold this text.
pub(super) fn is_text(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

pub(super) fn check(attributes: &BTreeMap<String, AttributeValue>) -> Result<(), FrameError> {
    for name in REQUIRED {
        if !attributes.contains_key(*name) {
            let message = format!("{name} is missing: a CloudEvent has specversion, id, source and type");
            return Err(FrameError::bad_frame(message));
        }
    }
    for (name, value) in attributes {
        if !is_name(name) {
            let rule = "names of CloudEvents attributes are of a-z and 0-9, and not `data`";
            return Err(FrameError::bad_frame(format!(
                "attribute {:?} is not possible: {rule}",
                shown(name)
            )));
        }
        let text = value.as_str();
        let expected = if STRINGS.contains(&name.as_str())
            && (matches!(value, AttributeValue::Plain(_)) || text.is_empty())
        {
            Some("a string that is not empty")
        } else if !is_text(text) {
            Some("text without control characters")
        } else {
            wrong(name, text)
        };
        if let Some(expected) = expected {
            return Err(FrameError::bad_frame(format!("{name} is {:?}: it must be {expected}", shown(text))));
        }
    }
    Ok(())
}

/// Returns what a value of this attribute must be, if this text is not.
fn wrong(name: &str, text: &str) -> Option<&'static str> {
    let (fine, expected) = match name {
        "specversion" => (text == SPECVERSION, "\"1.0\""),
        "source" => (is_uri(text), "a URI or a relative reference, without spaces"),
        "dataschema" => (is_uri(text) && text.contains(':'), "an absolute URI, without spaces"),
        "datacontenttype" => (is_media_type(text), "a media type, such as application/json"),
        "time" => (is_rfc3339(text), "a time by RFC 3339, such as 2026-11-15T12:00:00Z"),
        _ => (true, ""),
    };
    (!fine).then_some(expected)
}

/// Checks less than the whole grammar: enough that no other kind of text passes for a URI.
fn is_uri(text: &str) -> bool {
    !text
        .chars()
        .any(|c| c.is_whitespace() || matches!(c, '<' | '>' | '"' | '\\' | '^' | '`' | '{' | '|' | '}'))
}

fn is_media_type(text: &str) -> bool {
    let kind = text.split(';').next().unwrap_or_default().trim();
    let part = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    kind.split_once('/').is_some_and(|(kind, sub)| part(kind) && part(sub))
}

/// Checks the form alone. A date parser would accept other forms too, and refuse times that publishers have always been
/// allowed to give (decision 0049).
fn is_rfc3339(text: &str) -> bool {
    let Some((date, rest)) = text.split_at_checked(10) else { return false };
    let Some((clock, rest)) = rest.split_at_checked(9) else { return false };
    let number = |text: &str, at: usize| text.get(at..at + 2).and_then(|two| two.parse::<u8>().ok());
    let digits = |text: &str, pattern: &str| {
        text.len() == pattern.len()
            && text.bytes().zip(pattern.bytes()).all(|(found, expected)| match expected {
                b'9' => found.is_ascii_digit(),
                b'T' => matches!(found, b'T' | b't'),
                expected => found == expected,
            })
    };
    let within = |number: Option<u8>, min, max| number.is_some_and(|n| (min..=max).contains(&n));
    let fraction = rest.strip_prefix('.').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    let zone = match fraction {
        Some(zone) if rest.len() - zone.len() < 2 => return false,
        Some(zone) => zone,
        None => rest,
    };
    let zone_is_fine = match zone {
        "Z" | "z" => true,
        zone => {
            (digits(zone, "+99:99") || digits(zone, "-99:99"))
                && within(number(zone, 1), 0, 23)
                && within(number(zone, 4), 0, 59)
        }
    };
    digits(date, "9999-99-99")
        && within(number(date, 5), 1, 12)
        && within(number(date, 8), 1, 31)
        && digits(clock, "T99:99:99")
        && within(number(clock, 1), 0, 23)
        && within(number(clock, 4), 0, 59)
        && within(number(clock, 7), 0, 60)
        && zone_is_fine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_from_other_text() {
        for text in ["2026-11-15T12:00:00Z", "2026-11-15t23:59:60.123456789z", "1985-04-12T23:20:50.52-08:00"]
        {
            assert!(is_rfc3339(text), "{text}");
        }
        for text in [
            "",
            "2026-11-15",
            "2026-11-15T12:00:00",
            "2026-11-15 12:00:00Z",
            "2026-13-15T12:00:00Z",
            "2026-11-32T12:00:00Z",
            "2026-11-15T24:00:00Z",
            "2026-11-15T12:60:00Z",
            "2026-11-15T12:00:00.Z",
            "2026-11-15T12:00:00+0100",
            "2026-11-15T12:00:00+24:00",
            "20é6-11-15T12:00:00Z",
            "1794780400319",
        ] {
            assert!(!is_rfc3339(text), "{text}");
        }
    }

    #[test]
    fn plain_values_are_booleans_and_32_bits() {
        for json in ["true", "false", "0", "-2147483648", "2147483647"] {
            assert!(AttributeValue::plain(json).is_some(), "{json}");
        }
        for json in ["1.0", "1e3", "2147483648", "-0", "{}", "[1]", "null"] {
            assert!(AttributeValue::plain(json).is_none(), "{json}");
        }
    }
}
