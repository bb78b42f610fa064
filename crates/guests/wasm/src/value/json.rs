//! Values as JSON: for the command line, traces and scripts.

use serde_json::{Map, Number, Value as Json, json};

use super::Value;

impl Value {
    /// Returns the value as JSON. Bytes become an array of numbers. Floats that JSON cannot write become the strings
    /// `NaN`, `Infinity` and `-Infinity`. Map keys that are not strings are written as their own JSON text; a map in
    /// which two keys would have the same text becomes `{"map":[[key,value],...]}`, so that no entry is lost.
    pub fn to_json(&self) -> Json {
        match self {
            Value::Nil => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(value) => Json::from(*value),
            Value::Uint(value) => Json::from(*value),
            Value::F32(value) => float(f64::from(*value)),
            Value::F64(value) => float(*value),
            Value::Str(text) => Json::String(text.clone()),
            Value::Bin(bytes) => Json::from(bytes.as_slice()),
            Value::Array(items) => Json::Array(items.iter().map(Value::to_json).collect()),
            Value::Map(entries) => map(entries),
        }
    }

    /// Returns the value that a JSON text means: whole numbers are integers, all others are `f64`.
    pub fn from_json(json: &Json) -> Value {
        match json {
            Json::Null => Value::Nil,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => from_number(number),
            Json::String(text) => Value::Str(text.clone()),
            Json::Array(items) => Value::Array(items.iter().map(Value::from_json).collect()),
            Json::Object(fields) => from_object(fields),
        }
    }
}

fn map(entries: &[(Value, Value)]) -> Json {
    let mut fields = Map::new();
    for (key, value) in entries {
        let name = match key {
            Value::Str(text) => text.clone(),
            other => other.to_json().to_string(),
        };
        if fields.insert(name, value.to_json()).is_some() {
            return pairs(entries);
        }
    }
    Json::Object(fields)
}

fn pairs(entries: &[(Value, Value)]) -> Json {
    let pairs: Vec<Json> =
        entries.iter().map(|(key, value)| Json::from(vec![key.to_json(), value.to_json()])).collect();
    json!({ "map": pairs })
}

fn float(value: f64) -> Json {
    let name = || {
        if value.is_nan() {
            "NaN"
        } else if value > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
    };
    Number::from_f64(value).map_or_else(|| Json::String(name().to_owned()), Json::Number)
}

fn from_number(number: &Number) -> Value {
    if let Some(value) = number.as_i64() {
        Value::Int(value)
    } else if let Some(value) = number.as_u64() {
        Value::Uint(value)
    } else {
        Value::F64(number.as_f64().unwrap_or(f64::NAN))
    }
}

fn from_object(fields: &Map<String, Json>) -> Value {
    Value::Map(
        fields.iter().map(|(name, value)| (Value::from(name.as_str()), Value::from_json(value))).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_back() {
        let json = serde_json::json!({"a": [1, -2, 2.5, null, true], "b": {"c": "d"}, "e": u64::MAX});
        assert_eq!(Value::from_json(&json).to_json(), json);
    }

    #[test]
    fn a_map_whose_keys_have_the_same_text_keeps_every_entry() {
        let map = |keys: [Value; 2]| Value::Map(keys.into_iter().zip([2.into(), 3.into()]).collect());
        assert_eq!(map([1.into(), 2.into()]).to_json(), json!({ "1": 2, "2": 3 }));
        assert_eq!(map([1.into(), "1".into()]).to_json(), json!({ "map": [[1, 2], ["1", 3]] }));
        assert_eq!(map(["a".into(), "a".into()]).to_json(), json!({ "map": [["a", 2], ["a", 3]] }));
    }

    #[test]
    fn floats_that_json_lacks_are_named() {
        assert_eq!(Value::F64(f64::NAN).to_json(), Json::from("NaN"));
        assert_eq!(Value::F32(f32::NEG_INFINITY).to_json(), Json::from("-Infinity"));
    }
}
