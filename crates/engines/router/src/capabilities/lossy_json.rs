//! Replaces legal JSON values that Rust types cannot hold by the nearest ones that they can.
//!
//! The result is only for inspection: forwarded messages keep their original text.

use serde_json::Value;

const REPLACEMENT: &str = "\\ufffd";

/// Returns a copy in which numbers beyond the range of doubles become the largest double, and lone surrogates become
/// U+FFFD. Invalid JSON gives some text or other.
pub(crate) fn lossy_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '"' => push_string(&mut out, rest),
            '-' | '0'..='9' => push_number(&mut out, rest),
            _ => {
                out.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    out
}

/// Copies a number. Like `push_string`, returns how many bytes it consumed from the front of `text`.
fn push_number(out: &mut String, text: &str) -> usize {
    let is_part = |byte: u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let bytes = text.bytes().position(|byte| !is_part(byte)).unwrap_or(text.len());
    let number = &text[..bytes];
    match number.parse::<f64>() {
        Ok(value) if serde_json::from_str::<Value>(number).is_err() => {
            out.push_str(&format!("{:e}", value.clamp(f64::MIN, f64::MAX)));
        }
        _ => out.push_str(number),
    }
    bytes
}

fn push_string(out: &mut String, text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut copied) = (1, 0);
    while at < bytes.len() && bytes[at] != b'"' {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        let length = match surrogate(bytes, at) {
            None => 2,
            Some(Half::High) if matches!(surrogate(bytes, at + 6), Some(Half::Low)) => 12,
            Some(_) => {
                out.push_str(&text[copied..at]);
                out.push_str(REPLACEMENT);
                copied = at + 6;
                6
            }
        };
        at += length;
    }
    // `at` is at the closing quote. Broken text may end earlier, or within a character.
    let end = text.ceil_char_boundary((at + 1).min(text.len()));
    out.push_str(&text[copied..end]);
    end
}

enum Half {
    High,
    Low,
}

/// Which half of a surrogate pair is escaped at `at`, if any.
fn surrogate(bytes: &[u8], at: usize) -> Option<Half> {
    let escape = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let unit = u16::from_str_radix(std::str::from_utf8(escape).ok()?, 16).ok()?;
    match unit {
        0xd800..=0xdbff => Some(Half::High),
        0xdc00..=0xdfff => Some(Half::Low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_be_held_changes() {
        for (json, tamed) in [
            (r#"{"a":[1,-0,1.5e3,12345678901234567890],"b":"1e400"}"#, None),
            ("[1e400, -1e400]", Some("[1.7976931348623157e308, -1.7976931348623157e308]")),
            (r#""\ud83d\ude00""#, None),
            (r#""\\ud800\"1e400""#, None),
            (r#""a\ud800b""#, Some(r#""a\ufffdb""#)),
            (r#""\udc00\ud800""#, Some(r#""\ufffd\ufffd""#)),
            (r#""\ud800\ud83d\ude00""#, Some(r#""\ufffd\ud83d\ude00""#)),
            (r#"{"\uD800":"ü\uDFFF"}"#, Some(r#"{"\ufffd":"ü\ufffd"}"#)),
        ] {
            assert_eq!(lossy_json(json), tamed.unwrap_or(json));
            assert!(serde_json::from_str::<Value>(&lossy_json(json)).is_ok(), "{json}");
        }
    }

    #[test]
    fn a_number_of_many_digits_is_the_double_it_means() {
        let long = format!("1{}e-400", "0".repeat(400));
        assert_eq!(serde_json::from_str::<f64>(&lossy_json(&long)).unwrap(), 1.0);
    }

    #[test]
    fn broken_text_gives_some_text() {
        for json in ["\"", "\"\\", "\"\\ü", "\"\\ud8", "\"\\ud800", "-", "1e", "\"ü", "\\u+d80"] {
            lossy_json(json);
        }
    }
}
