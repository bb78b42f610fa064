//! Converts the bytes of a guest's events to payloads of the bus, and back. Payloads are JSON, guests send any bytes;
//! between guests every byte arrives as it was sent.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use millrace_client::{Delivery, JsonText, NewMessage};

/// The header that says how the data was encoded; the payload is a JSON string then.
const FORM: &str = "guest-data";
const TEXT: &str = "text";
const BASE64: &str = "base64";

/// Encodes a guest's data. JSON on one line becomes the payload as it is. Other text becomes a JSON string, other bytes
/// a JSON string in base64.
pub(super) fn to_message(data: &[u8]) -> NewMessage {
    let Ok(text) = std::str::from_utf8(data) else {
        return NewMessage::new(string(&BASE64_STANDARD.encode(data))).header(FORM, BASE64);
    };
    match JsonText::parse(text) {
        // The bus removes white space around a payload and line ends inside it, so the text must equal its normal form.
        Ok(json) if json.as_str() == text => NewMessage::new(json),
        _ => NewMessage::new(string(text)).header(FORM, TEXT),
    }
}

/// Returns the bytes that a guest receives. A header that does not fit the payload is ignored.
pub(super) fn of_delivery(delivery: &Delivery) -> Vec<u8> {
    let form = delivery.message.envelope.headers.as_ref().and_then(|headers| headers.get(FORM));
    from_payload(form.as_deref(), delivery.payload())
}

fn from_payload(form: Option<&str>, payload: &JsonText) -> Vec<u8> {
    let text = || serde_json::from_str::<String>(payload.as_str()).ok();
    let data = match form {
        Some(TEXT) => text().map(String::into_bytes),
        Some(BASE64) => text().and_then(|text| BASE64_STANDARD.decode(text).ok()),
        _ => None,
    };
    data.unwrap_or_else(|| payload.bytes().to_vec())
}

fn string(text: &str) -> JsonText {
    // A string always has a JSON form.
    JsonText::from_value(&text).unwrap_or_else(|_| JsonText::null())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(data: &[u8]) -> (Option<String>, String) {
        let mut message = to_message(data);
        let form = message.headers.remove(FORM);
        assert_eq!(from_payload(form.as_deref(), &message.payload), data, "{data:?} comes back as it was");
        (form, message.payload.as_str().to_owned())
    }

    #[test]
    fn json_is_a_payload_and_everything_else_comes_back_as_it_was() {
        let form = |form: &str| Some(form.to_owned());
        assert_eq!(stored(br#"{"a": [1, "x"]}"#), (None, r#"{"a": [1, "x"]}"#.to_owned()));
        assert_eq!(stored(b"42"), (None, "42".to_owned()));
        assert_eq!(stored(b"42\n"), (form(TEXT), r#""42\n""#.to_owned()));
        assert_eq!(stored(b" 42"), (form(TEXT), r#"" 42""#.to_owned()));
        assert_eq!(stored(b"{\n}"), (form(TEXT), r#""{\n}""#.to_owned()));
        assert_eq!(stored(b""), (form(TEXT), r#""""#.to_owned()));
        assert_eq!(stored("grüß\0".as_bytes()), (form(TEXT), "\"grüß\\u0000\"".to_owned()));
        assert_eq!(stored(&[0xff, 0, 1]), (form(BASE64), r#""/wAB""#.to_owned()));
        assert_eq!(stored("[".repeat(200).as_bytes()).0, form(TEXT));
    }

    #[test]
    fn a_header_that_does_not_fit_changes_nothing() {
        let payload = JsonText::parse("[1]").unwrap();
        for form in [TEXT, BASE64, "other"] {
            assert_eq!(from_payload(Some(form), &payload), b"[1]");
        }
        assert_eq!(from_payload(Some(BASE64), &JsonText::parse(r#""?""#).unwrap()), br#""?""#);
    }
}
