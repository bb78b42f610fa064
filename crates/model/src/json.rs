//! One JSON value as text: kept byte for byte, known to be one line and not too deep.

use std::fmt;

use bytes::Bytes;
use serde_json::value::RawValue;

/// Deepest nesting of arrays and objects that is let in.
pub const JSON_DEPTH_MAX: usize = 128;

/// A JSON value in the bytes its author wrote. Raw CR and LF, legal only between tokens, have become spaces, so a
/// value can stand in a line of NDJSON. The text was parsed once, at the door, and is never re-serialised.
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

    /// From a value whose grammar serde has checked and whose depth the caller has checked on the document around it.
    pub fn from_checked(raw: &RawValue) -> JsonText {
        JsonText::from_stored(one_line(raw.get().as_bytes()))
    }

    /// From bytes this type once produced: a store reading back what it was given.
    pub fn from_stored(bytes: Bytes) -> JsonText {
        JsonText(bytes)
    }

    pub fn from_value<T: serde::Serialize>(value: &T) -> Result<JsonText, JsonError> {
        Ok(JsonText(serde_json::to_vec(value)?.into()))
    }

    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Stored bytes pass a checksum before they get here; should they be no UTF-8 all the same, they read as `null`.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    /// Whether a document is within [`JSON_DEPTH_MAX`]; serde does not count levels of values it only skips.
    pub fn depth_is_fine(text: &str) -> bool {
        // Every level takes two brackets: most documents are too short to be looked at.
        text.len() <= 2 * JSON_DEPTH_MAX || depth(text.as_bytes()) <= JSON_DEPTH_MAX
    }
}

/// Grammar lets raw line breaks stand only between tokens.
fn one_line(bytes: &[u8]) -> Bytes {
    if !bytes.contains(&b'\n') && !bytes.contains(&b'\r') {
        return Bytes::copy_from_slice(bytes);
    }
    bytes.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}

/// One pass over the bytes. Brackets inside strings do not count; malformed text gives some answer and is refused
/// by the parser anyway.
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
