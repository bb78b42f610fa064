//! Values as JSON that keeps every type apart, for scripts and recordings.
//!
//! Plain JSON means what it says: whole numbers are integers, other numbers `f64`, objects records. Other values are
//! objects with one tag: `{"i64":"5"}`, `{"f64":2}` (or `"NaN"`, `"Infinity"`, `"-Infinity"`), `{"f32":0.5}`,
//! `{"bytes":"00ff"}` in hexadecimal, and `{"map":[[key,value],...]}` for keys that are no strings and for records that
//! would read as a tag. Values nested deeper than [`LEVELS_MAX`] are written as `{"msgpack":"91c0"}`, the bytes of
//! their MsgPack: a tag takes several levels of JSON for one of a value, and readers of JSON stop at 128.

use serde_json::{Value as Json, json};

use crate::codec::msgpack;
use crate::value::Value;

const TAGS: [&str; 6] = ["i64", "f64", "f32", "bytes", "map", "msgpack"];

/// Levels of a value that are written as JSON: each takes up to three levels of JSON, which stays below 128.
const LEVELS_MAX: usize = 32;

/// JSON that is not a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{{\"{tag}\":{found}}} is no value: {expected}")]
pub struct TaggedError {
    pub tag: &'static str,
    pub found: String,
    pub expected: &'static str,
}

/// A whole number that no value can hold. A JSON reader would turn it into a float, which is another number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{number} is beyond 64 bits: whole numbers go from -9223372036854775808 to 18446744073709551615; a float of about \
     this size is {{\"f64\":{number}}}"
)]
pub struct NumberError {
    pub number: String,
}

/// Checks that the whole numbers of a JSON text fit 64 bits, except where a tag says that a float is meant.
///
/// # Errors
///
/// [`NumberError`] names the first number that does not fit.
pub fn check_numbers(text: &str) -> Result<(), NumberError> {
    let bytes = text.as_bytes();
    let (mut at, mut name) = (0, "");
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                let len = string_len(&bytes[at..]);
                name = &text[at..at + len];
                at += len;
            }
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &&u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                let len = bytes[at..].iter().take_while(is_part).count();
                let number = &text[at..at + len];
                let fits = number.contains(['.', 'e', 'E'])
                    || number.parse::<i64>().is_ok()
                    || number.parse::<u64>().is_ok();
                if !fits && name != "\"f64\"" && name != "\"f32\"" {
                    return Err(NumberError { number: number.to_owned() });
                }
                at += len;
                name = "";
            }
            b':' | b' ' | b'\t' | b'\n' | b'\r' => at += 1,
            _ => {
                at += 1;
                name = "";
            }
        }
    }
    Ok(())
}

/// The length of the JSON string at the start of a text, with both quotes.
fn string_len(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Writes a value so that [`from_tagged`] reads back the same one.
pub fn to_tagged(value: &Value) -> Json {
    tagged_at(value, 0)
}

fn tagged_at(value: &Value, level: usize) -> Json {
    if level == LEVELS_MAX
        && let Value::Array(_) | Value::Map(_) = value
        && let Some(tagged) = as_msgpack(value)
    {
        return tagged;
    }
    let to_tagged = |value: &Value| tagged_at(value, level + 1);
    match value {
        Value::F32(number) => json!({ "f32": float(f64::from(*number)) }),
        // A fraction is read back as the same number.
        Value::F64(number) if number.is_finite() && number.fract() != 0.0 => json!(number),
        Value::F64(number) => json!({ "f64": float(*number) }),
        Value::Bin(bytes) => json!({ "bytes": hex(bytes) }),
        Value::Array(items) => Json::Array(items.iter().map(&to_tagged).collect()),
        Value::Map(entries) if is_plain_record(entries) => {
            let field = |(key, value): &(Value, Value)| {
                (key.as_str().unwrap_or_default().to_owned(), to_tagged(value))
            };
            Json::Object(entries.iter().map(field).collect())
        }
        Value::Map(entries) => {
            let pairs = entries.iter().map(|(key, value)| json!([to_tagged(key), to_tagged(value)]));
            json!({ "map": pairs.collect::<Vec<_>>() })
        }
        value => value.to_json(),
    }
}

/// Returns `None` for values deeper than MsgPack allows, which no module can send or receive.
fn as_msgpack(value: &Value) -> Option<Json> {
    let mut bytes = Vec::new();
    msgpack::write(&mut bytes, value).ok()?;
    Some(json!({ "msgpack": hex(&bytes) }))
}

/// Whether a JSON object can represent the map: the keys are strings, sorted and without duplicates, and do not form a
/// tag.
fn is_plain_record(entries: &[(Value, Value)]) -> bool {
    let names: Option<Vec<&str>> = entries.iter().map(|(key, _)| key.as_str()).collect();
    names.is_some_and(|names| {
        names.is_sorted_by(|one, next| one < next) && !(names.len() == 1 && TAGS.contains(&names[0]))
    })
}

/// Reads a value: plain JSON, or a tag.
///
/// # Errors
///
/// [`TaggedError`] if a tag holds something else than it says.
pub fn from_tagged(json: &Json) -> Result<Value, TaggedError> {
    match json {
        Json::Array(items) => Ok(Value::Array(items.iter().map(from_tagged).collect::<Result<_, _>>()?)),
        Json::Object(fields) if fields.len() == 1 => {
            let Some((name, inner)) = fields.iter().next() else { return Ok(Value::Map(Vec::new())) };
            match TAGS.into_iter().find(|tag| tag == name) {
                Some(tag) => from_tag(tag, inner),
                None => Ok(Value::Map(vec![(name.as_str().into(), from_tagged(inner)?)])),
            }
        }
        Json::Object(fields) => {
            let entry = |(name, inner): (&String, &Json)| Ok((name.as_str().into(), from_tagged(inner)?));
            Ok(Value::Map(fields.iter().map(entry).collect::<Result<_, _>>()?))
        }
        json => Ok(Value::from_json(json)),
    }
}

fn from_tag(tag: &'static str, json: &Json) -> Result<Value, TaggedError> {
    let bad = |expected| TaggedError { tag, found: json.to_string(), expected };
    match tag {
        "i64" => {
            let number = json.as_i64().or_else(|| json.as_str()?.parse().ok());
            number.map(Value::Int).ok_or_else(|| bad("an integer of 64 bits, as text or as a number"))
        }
        "f64" | "f32" => {
            let number =
                from_float(json).ok_or_else(|| bad("a number, \"NaN\", \"Infinity\" or \"-Infinity\""))?;
            Ok(if tag == "f64" { Value::F64(number) } else { Value::F32(number as f32) })
        }
        "bytes" => {
            let bytes = json.as_str().and_then(from_hex);
            bytes.map(Value::Bin).ok_or_else(|| bad("two hexadecimal digits for each byte"))
        }
        "msgpack" => {
            let bytes = json.as_str().and_then(from_hex);
            let value = bytes.and_then(|bytes| msgpack::read(&bytes).ok());
            value.ok_or_else(|| bad("the bytes of one MsgPack value, two hexadecimal digits each"))
        }
        _ => {
            let expected = "a list of pairs [key,value]";
            let pairs = json.as_array().ok_or_else(|| bad(expected))?;
            let pair = |pair: &Json| match pair.as_array().map(Vec::as_slice) {
                Some([key, value]) => Ok((from_tagged(key)?, from_tagged(value)?)),
                _ => Err(bad(expected)),
            };
            Ok(Value::Map(pairs.iter().map(pair).collect::<Result<_, _>>()?))
        }
    }
}

fn float(number: f64) -> Json {
    Value::F64(number).to_json()
}

fn from_float(json: &Json) -> Option<f64> {
    match json {
        Json::Number(number) => number.as_f64(),
        Json::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || text.len() % 2 == 1 {
        return None;
    }
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).ok();
    // `from_str_radix` would accept a sign.
    let digits = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    digits.then(|| (0..text.len()).step_by(2).map(byte).collect()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_reads_back_as_itself() {
        let record = |fields: Vec<(Value, Value)>| Value::Map(fields);
        for value in [
            Value::Nil,
            Value::Bool(true),
            Value::Int(-5),
            Value::Uint(u64::MAX),
            Value::F64(2.0),
            Value::F64(0.1),
            Value::F64(f64::INFINITY),
            Value::F32(0.1),
            "text".into(),
            Value::Bin(vec![0, 255, 16]),
            Value::Array(vec![Value::F64(1.0), Value::Int(1)]),
            Value::record([("a", 1.into()), ("b", Value::F64(3.0))]),
            Value::record([("b", 1.into()), ("a", 2.into())]),
            Value::record([("i64", "not a number".into())]),
            Value::record([("msgpack", "c0".into())]),
            record(vec![(Value::Int(1), Value::Nil)]),
            record(Vec::new()),
        ] {
            let text = to_tagged(&value).to_string();
            let read = serde_json::from_str(&text).unwrap();
            assert_eq!(from_tagged(&read).unwrap(), value, "{text}");
        }
    }

    #[test]
    fn a_value_as_deep_as_modules_send_it_reads_back_from_its_text() {
        let deep =
            |wrap: fn(Value) -> Value| (0..msgpack::DEPTH_MAX).fold(Value::Int(5), |inner, _| wrap(inner));
        for value in [
            deep(|inner| Value::Array(vec![inner])),
            deep(|inner| Value::record([("b", inner), ("a", Value::Nil)])),
            deep(|inner| Value::Map(vec![(Value::Int(1), inner)])),
        ] {
            let text = to_tagged(&value).to_string();
            assert_eq!(from_tagged(&serde_json::from_str(&text).unwrap()).unwrap(), value, "{text}");
        }
    }

    #[test]
    fn whole_numbers_beyond_64_bits_are_refused_unless_a_float_is_meant() {
        for text in [
            "18446744073709551615",
            "-9223372036854775808",
            "1e30",
            "18446744073709551616.0",
            "{\"f64\" : 18446744073709551616}",
            "[\"18446744073709551616\",\"\\\"18446744073709551616\"]",
        ] {
            assert_eq!(check_numbers(text), Ok(()), "{text}");
        }
        for (text, number) in [
            ("18446744073709551616", "18446744073709551616"),
            ("{\"f64\":[1,-9223372036854775809]}", "-9223372036854775809"),
            ("{\"value\":99999999999999999999}", "99999999999999999999"),
        ] {
            assert_eq!(check_numbers(text), Err(NumberError { number: number.into() }), "{text}");
        }
    }

    #[test]
    fn plain_json_means_what_it_says() {
        let read = |json: Json| from_tagged(&json).unwrap();
        assert_eq!(read(json!(5)), Value::Int(5));
        assert_eq!(read(json!(5.5)), Value::F64(5.5));
        assert_eq!(read(json!({ "i64": "9007199254740993" })), Value::Int(9_007_199_254_740_993));
        assert_eq!(read(json!({ "f64": 2 })), Value::F64(2.0));
    }

    #[test]
    fn a_tag_with_something_else_is_named() {
        for (json, part) in [
            (json!({ "i64": "x" }), "64 bits"),
            (json!({ "f64": "x" }), "NaN"),
            (json!({ "bytes": "0" }), "hexadecimal"),
            (json!({ "bytes": "+1" }), "hexadecimal"),
            (json!({ "map": [[1]] }), "pairs"),
            (json!({ "msgpack": "91" }), "MsgPack"),
        ] {
            let error = from_tagged(&json).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
