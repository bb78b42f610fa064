//! JSON text inside a row that is JSON itself: written as `[value]`, the value byte for byte. As a JSON string, which
//! older versions wrote, text full of quotes takes up to twice the space. Both forms are read.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

#[allow(clippy::ref_option, reason = "serde calls it so")]
pub(crate) fn serialize<S: Serializer>(text: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    let Some(text) = text else { return serializer.serialize_none() };
    match serde_json::from_str::<&RawValue>(text) {
        // Whitespace around the value would be lost.
        Ok(value) if value.get().len() == text.len() => [value].serialize(serializer),
        _ => text.serialize(serializer),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let Some(raw) = Option::<Box<RawValue>>::deserialize(deserializer)? else { return Ok(None) };
    let text = if raw.get().starts_with('[') {
        let [value] = serde_json::from_str::<[Box<RawValue>; 1]>(raw.get()).map_err(D::Error::custom)?;
        Box::<str>::from(value).into_string()
    } else {
        serde_json::from_str(raw.get()).map_err(D::Error::custom)?
    };
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Row {
        #[serde(default, with = "super", skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    }

    fn row(text: &str) -> String {
        serde_json::to_string(&Row { text: Some(text.to_owned()) }).unwrap()
    }

    fn read(row: &str) -> Option<String> {
        serde_json::from_str::<Row>(row).unwrap().text
    }

    #[test]
    fn values_stand_in_the_row_as_they_are_and_come_back_so() {
        let deep = format!("{}{}", "[".repeat(128), "]".repeat(128));
        let fine = ["null", "1.50", r#""a\"b""#, r#"{ "a" : [1,2] }"#, "[]", "[[1]]", deep.as_str()];
        for text in fine {
            assert_eq!(row(text), format!(r#"{{"text":[{text}]}}"#));
            assert_eq!(read(&row(text)).as_deref(), Some(text));
        }
        for text in [" 1 ", "", "no JSON", r#"[1"#] {
            assert_eq!(read(&row(text)).as_deref(), Some(text));
        }
    }

    #[test]
    fn rows_of_older_versions_and_rows_without_text_are_read() {
        assert_eq!(read(r#"{"text":"[\"x\"]"}"#).as_deref(), Some(r#"["x"]"#));
        assert_eq!(read("{}"), None);
        assert_eq!(read(r#"{"text":null}"#), None);
        assert!(serde_json::from_str::<Row>(r#"{"text":[1,2]}"#).is_err());
        assert!(serde_json::from_str::<Row>(r#"{"text":7}"#).is_err());
    }
}
