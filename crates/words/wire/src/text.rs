//! Writing JSON by hand: strings with their escapes, and the members of an object that may be absent.

use std::fmt::{Display, Write};

use crate::rid::Rid;

/// Appends a JSON string.
pub(crate) fn push_string(out: &mut String, text: &str) {
    out.push('"');
    each_piece(text, |piece| out.push_str(piece));
    out.push('"');
}

/// Calls `take` with the escaped text of a JSON string (without quotes) in pieces. Most strings need no escape and are
/// one piece.
pub(crate) fn each_piece(text: &str, mut take: impl FnMut(&str)) {
    let mut taken = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..0x20 => "",
            _ => continue,
        };
        take(&text[taken..at]);
        if escape.is_empty() {
            take(&format!("\\u{byte:04x}"));
        } else {
            take(escape);
        }
        taken = at + 1;
    }
    take(&text[taken..]);
}

/// Appends a value's display form. Writing into a `String` cannot fail.
pub(crate) fn push_display(out: &mut String, value: impl Display) {
    let _ = write!(out, "{value}");
}

/// Appends `,"name":"text"`.
pub(crate) fn push_string_member(out: &mut String, name: &str, text: &str) {
    push_name(out, name);
    push_string(out, text);
}

/// Appends `,"name":value` for a value whose display form is JSON: a number, `true`, JSON text.
pub(crate) fn push_member(out: &mut String, name: &str, value: impl Display) {
    push_name(out, name);
    push_display(out, value);
}

/// Appends `,"name":json`.
pub(crate) fn push_json_member(out: &mut String, name: &str, json: &str) {
    push_name(out, name);
    out.push_str(json);
}

pub(crate) fn push_rid(out: &mut String, rid: Option<&Rid>) {
    if let Some(rid) = rid {
        push_json_member(out, "rid", rid.as_json());
    }
}

fn push_name(out: &mut String, name: &str) {
    out.push_str(",\"");
    out.push_str(name);
    out.push_str("\":");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_string_comes_back(text in any::<String>()) {
            let mut out = String::new();
            push_string(&mut out, &text);
            prop_assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }
    }
}
