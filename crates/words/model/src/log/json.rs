//! JSON text: one value, kept byte for byte, known to be one line and not nested too deep.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde_json::value::RawValue;

/// Deepest nesting of arrays and objects that is accepted.
pub const JSON_DEPTH_MAX: usize = 128;

/// A JSON value in the bytes its author wrote. Raw CR and LF, legal only between tokens, have become spaces, so a value
/// can stand in a line of NDJSON. The text is parsed once, when it is received, and is never re-serialised.
#[derive(Clone, PartialEq, Eq)]
pub struct JsonText(Bytes);

#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    #[error("not valid JSON: {0}")]
    Syntax(#[from] serde_json::Error),
    #[error("nested more than {JSON_DEPTH_MAX} levels deep")]
    TooDeep,
}

impl JsonText {
    pub fn null() -> JsonText {
        JsonText(Bytes::from_static(b"null"))
    }

    /// Checks grammar, depth and newlines of a whole document.
    pub fn parse(text: &str) -> Result<JsonText, JsonError> {
        if !JsonText::depth_is_fine(text) {
            return Err(JsonError::TooDeep);
        }
        let raw: &RawValue = serde_json::from_str(text)?;
        Ok(JsonText::from_checked(raw))
    }

    /// Takes a value whose grammar serde has checked and whose depth the caller has checked on the document around it.
    pub fn from_checked(raw: &RawValue) -> JsonText {
        JsonText::from_stored(one_line(raw.get().as_bytes()))
    }

    /// Wraps bytes that this type once produced, such as a store reads back.
    pub fn from_stored(bytes: Bytes) -> JsonText {
        JsonText(bytes)
    }

    pub fn from_value<T: serde::Serialize>(value: &T) -> Result<JsonText, JsonError> {
        Ok(JsonText(serde_json::to_vec(value)?.into()))
    }

    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Returns the text. Stored bytes have passed a checksum; if they are not UTF-8 all the same, they read as `null`.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    /// Returns the text of an object with each of its members once: of members with the same name the last one counts.
    /// For readers that refuse repeated members. Any other value is returned as it is.
    pub fn last_members(&self) -> Cow<'_, str> {
        last_members(self.as_str())
    }

    /// Whether a document is within [`JSON_DEPTH_MAX`]; serde does not count levels of values it only skips.
    pub fn depth_is_fine(text: &str) -> bool {
        // Every level takes two brackets. Most documents are too short or have too few of them to need the scan, and
        // counting all of them, those in strings too, takes a fraction of its time.
        text.len() <= 2 * JSON_DEPTH_MAX
            || opening_brackets(text.as_bytes()) <= JSON_DEPTH_MAX
            || depth(text.as_bytes()) <= JSON_DEPTH_MAX
    }
}

/// Counts in bytes, in chunks short enough for that: the compiler then compares many of them in one instruction.
fn opening_brackets(bytes: &[u8]) -> usize {
    let is_opening = |byte: &u8| u8::from(matches!(byte, b'{' | b'['));
    let chunks = bytes.chunks(usize::from(u8::MAX));
    chunks.map(|chunk| usize::from(chunk.iter().map(is_opening).sum::<u8>())).sum()
}

/// See [`JsonText::last_members`].
pub fn last_members(text: &str) -> Cow<'_, str> {
    let Ok(ObjectMembers(all)) = serde_json::from_str(text) else { return Cow::Borrowed(text) };
    let last: BTreeMap<&str, usize> =
        all.iter().zip(0..).map(|((name, _), at)| (name.as_str(), at)).collect();
    if last.len() == all.len() {
        return Cow::Borrowed(text);
    }
    let kept = all.iter().zip(0..).filter(|((name, _), at)| last.get(name.as_str()) == Some(at));
    let shown: Vec<String> = kept
        .map(|((name, value), _)| format!("{}:{}", serde_json::Value::from(name.as_str()), value.get()))
        .collect();
    Cow::Owned(format!("{{{}}}", shown.join(",")))
}

/// Members of an object in their order, repeated ones too.
struct ObjectMembers<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> serde::Deserialize<'de> for ObjectMembers<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> serde::de::Visitor<'de> for All {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: serde::de::MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut all = Vec::new();
                while let Some(member) = map.next_entry()? {
                    all.push(member);
                }
                Ok(all)
            }
        }
        from.deserialize_map(All).map(ObjectMembers)
    }
}

/// Replaces raw line breaks, which the grammar allows only between tokens, by spaces.
fn one_line(bytes: &[u8]) -> Bytes {
    if !bytes.contains(&b'\n') && !bytes.contains(&b'\r') {
        return Bytes::copy_from_slice(bytes);
    }
    bytes.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}

/// Returns the depth of nesting, in a single pass over the bytes. Brackets inside strings do not count. For malformed
/// text the result means nothing; the parser refuses such text anyway.
fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut depth_max) = (0usize, 0usize);
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'{' | b'[' => {
                depth += 1;
                depth_max = depth_max.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    depth_max
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_side_by_side_or_in_strings_are_no_depth() {
        let many = 2 * JSON_DEPTH_MAX;
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let padded = |inner: &str| format!("[{inner},{:?}]", "[{".repeat(many));
        for (text, is_fine) in [
            (padded(&vec!["{}"; many].join(",")), true),
            (padded(&nested(JSON_DEPTH_MAX - 1)), true),
            (padded(&nested(JSON_DEPTH_MAX)), false),
            (format!("{}{}", " ".repeat(many), nested(JSON_DEPTH_MAX)), true),
            (format!("{}{}", " ".repeat(many), nested(JSON_DEPTH_MAX + 1)), false),
        ] {
            assert_eq!(JsonText::depth_is_fine(&text), is_fine, "{text}");
        }
    }

    #[test]
    fn of_repeated_members_the_last_one_counts() {
        let last = |text: &str| JsonText::parse(text).unwrap().last_members().into_owned();
        assert_eq!(last(r#"{"a":1e400,"b":2,"a":-0}"#), r#"{"b":2,"a":-0}"#);
        assert_eq!(
            last(r#"{"a":1,"\u0061":2}"#),
            r#"{"a":2}"#,
            "by what a name says, not by how it is spelt"
        );
        for same in [r#"{ "a": 1, "b": {"c":1,"c":2} }"#, "[1,1]", "7", r#""{}""#, "{}"] {
            assert_eq!(last(same), same);
        }
    }

    #[test]
    fn bytes_are_kept_except_newlines_between_tokens() {
        for (given, kept) in [
            ("{\"a\":1e400,\"b\":12345678901234567890}", "{\"a\":1e400,\"b\":12345678901234567890}"),
            ("[1,\r\n 2]", "[1,   2]"),
            ("\"a\\nb\"", "\"a\\nb\""),
            ("null", "null"),
        ] {
            assert_eq!(JsonText::parse(given).unwrap().as_str(), kept);
        }
    }

    #[test]
    fn depth_is_bounded_and_strings_do_not_count() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(JsonText::parse(&nested(128)).is_ok());
        assert!(matches!(JsonText::parse(&nested(129)), Err(JsonError::TooDeep)));
        assert!(matches!(JsonText::parse(&nested(10_000)), Err(JsonError::TooDeep)));
        assert!(JsonText::parse(&format!("{:?}", "[".repeat(500))).is_ok());
        assert!(JsonText::parse("\"\\\"[[[\"").is_ok());
    }

    #[test]
    fn broken_text_is_refused() {
        for text in ["", "{", "nul", "[1,]", "{'a':1}", "\"\\u12\"", "1 2", "\"a\nb\""] {
            assert!(matches!(JsonText::parse(text), Err(JsonError::Syntax(_))), "{text:?}");
        }
    }
}
