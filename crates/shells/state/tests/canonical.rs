//! A single spelling per value: because of this property, comparing texts tells whether anything has changed.

use millrace_state::{canonical, canonical_text};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        // The two zeros are equal but spelled differently: the only case where spellings differ and `==` does not.
        any::<f64>()
            .prop_filter("JSON has no others", |x| x.is_finite() && (*x != 0.0 || x.is_sign_positive()))
            .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Returns the same value with the keys of every object inserted in reverse order.
fn turned(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(turned).collect(),
        Value::Object(map) => {
            let backwards = map.iter().rev().map(|(name, value)| (name.clone(), turned(value)));
            Value::Object(backwards.collect::<Map<_, _>>())
        }
        plain => plain.clone(),
    }
}

proptest! {
    #[test]
    fn a_value_comes_back_from_its_spelling(value in value()) {
        let text = canonical_text(&value);
        prop_assert_eq!(&serde_json::from_str::<Value>(&text).unwrap(), &value);
        prop_assert!(!text.contains(['\n', '\r']));
    }

    #[test]
    fn the_order_of_keys_does_not_matter(value in value()) {
        prop_assert_eq!(canonical_text(&turned(&value)), canonical_text(&value));
    }

    #[test]
    fn different_values_are_spelled_differently(left in value(), right in value()) {
        prop_assert_eq!(left == right, canonical_text(&left) == canonical_text(&right));
    }
}

#[test]
fn keys_are_sorted_at_every_level() {
    let value = json!({"b": [{"z": 1, "a": 2}], "a": {"y": null, "x": 1.5}});
    assert_eq!(canonical(&value).unwrap().as_str(), r#"{"a":{"x":1.5,"y":null},"b":[{"a":2,"z":1}]}"#);
}

#[test]
fn what_is_no_object_is_refused() {
    for (value, found) in [(json!(null), "null"), (json!([1]), "an array"), (json!("x"), "a string")] {
        assert!(canonical(&value).unwrap_err().to_string().contains(found));
    }
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!({ "a": deep });
    }
    assert!(canonical(&deep).unwrap_err().to_string().contains("128 levels"));
}
