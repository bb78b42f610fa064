//! Scenarios of the schema check: which payloads a schema admits, and which new schemas are refused.

use millrace_model::JsonText;
use serde_json::json;

use super::*;

const STAMP: SchemaStamp = SchemaStamp { incarnation: 1, version: 1, tombstones: false };
const WORK: WorkMax = WorkMax { event: 512 << 20, request: 2 << 30 };

fn schema(document: &Value) -> TopicSchema {
    TopicSchema::new(document, 0, STAMP, WORK).unwrap()
}

fn body(payload: &str) -> EventBody {
    EventBody::of(JsonText::parse(payload).unwrap())
}

fn check(document: &Value, payload: &str) -> Result<(), String> {
    schema(document).check(&body(payload), Quote::Value).map_err(|mismatch| mismatch.to_string())
}

fn refused(document: &Value) -> String {
    TopicSchema::new(document, 0, STAMP, WORK).expect_err("a schema that is refused").to_string()
}

#[test]
fn a_mismatch_says_where_and_what() {
    let order = json!({
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "string"}, "lines": {"items": {"properties": {"qty": {"minimum": 1}}}}},
    });
    assert_eq!(check(&order, r#"{"id":"x","lines":[{"qty":1}]}"#), Ok(()));
    for (payload, why) in [
        ("{}", r#"at the top: "id" is a required property"#),
        (r#"{"id":5}"#, r#"at /id: 5 is not of type "string""#),
        (r#"{"id":"x","lines":[{"qty":1},{"qty":0}]}"#, "at /lines/1/qty: 0 is less than the minimum of 1"),
        ("[]", r#"at the top: [] is not of type "object""#),
    ] {
        assert_eq!(check(&order, payload), Err(why.to_owned()));
    }
    let hidden = schema(&order).check(&body(r#"{"id":"secret","lines":[{"qty":-7}]}"#), Quote::Nothing);
    let hidden = hidden.map_err(|mismatch| mismatch.to_string());
    assert_eq!(hidden, Err("at /lines/0/qty: value is less than the minimum of 1".to_owned()));
}

#[test]
fn a_reason_is_bounded_whatever_it_quotes() {
    let why = check(&json!({"type": "integer"}), &format!("\"{}\"", "ü".repeat(100_000))).unwrap_err();
    assert!(why.len() <= REASON_BYTES_MAX + 3 && why.ends_with("..."), "{why}");
}

#[test]
fn what_is_no_schema_is_refused_with_its_place() {
    for (document, expected) in [
        (json!(5), "schema is refused at the top: it must be an object, true or false"),
        (json!({"properties": {"a/b": {"type": "strnig"}}}), "schema is refused at /properties/a~1b/type: "),
        (json!({"properties": {"a": {"pattern": "("}}}), "schema is refused at /properties/a/pattern: "),
        (json!({"$schema": "http://json-schema.org/draft-07/schema#"}), "schema is refused at /$schema: "),
        (json!({"items": {"$ref": "https://example.com/a.json"}}), "schema is refused at /items/$ref: "),
        (json!({"items": {"$ref": "file:///etc/passwd"}}), "schema is refused at /items/$ref: "),
        (json!({"items": {"$ref": "#anchor"}}), "schema is refused at /items/$ref: "),
        (json!({"items": {"$ref": "#/$defs/none"}}), "schema is refused at /items/$ref: "),
        (json!({"$dynamicRef": "#a"}), "schema is refused at /$dynamicRef: "),
    ] {
        let error = refused(&document);
        assert!(error.starts_with(expected), "{document}: {error}");
    }
}

/// Lookaround and backreferences need an engine that backtracks, and backtracking can take for ever.
#[test]
fn patterns_are_of_linear_time() {
    for pattern in ["(?=a)b", "(a)\\1"] {
        assert!(refused(&json!({"pattern": pattern})).starts_with("schema is refused at /pattern: "));
    }
    let slow_elsewhere = json!({"pattern": "^(a+)+$"});
    assert!(check(&slow_elsewhere, &format!("\"{}b\"", "a".repeat(100_000))).is_err());
    assert!(refused(&json!({"pattern": "(a{1000}b){1000}"})).contains("/pattern"));
}

#[test]
fn references_that_lead_back_are_refused_however_they_are_hidden() {
    for document in [
        json!({"properties": {"child": {"$ref": "#"}}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}}),
        // Properties whose names are those of keywords with values.
        json!({"properties": {"default": {"$ref": "#"}}}),
        json!({"properties": {"const": {"properties": {"enum": {"$ref": "#/properties/const"}}}}}),
    ] {
        let error = refused(&document);
        assert!(error.contains("leads back to itself"), "{document}: {error}");
    }
    // Inside a part with an id of its own, `#/...` leads to other places than it seems.
    for document in [
        json!({"properties": {"a": {"$id": "https://x/a", "properties": {"b": {"$ref": "#/properties/b"}}}, "b": true}}),
        json!({"$ref": "#/default/x", "default": {"x": {"$id": "https://x/y"}}}),
    ] {
        assert!(refused(&document).contains("an id inside a schema"), "{document}");
    }
    let fine = json!({"properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}}, "$id": "https://x/top"});
    assert_eq!(check(&fine, r#"{"$id":"a","$ref":"b"}"#), Ok(()));
}

/// Sixty definitions of two references each are checked 2^60 times, unless the work is counted beforehand.
#[test]
fn the_work_of_a_check_is_bounded() {
    let mut definitions = serde_json::Map::new();
    for n in 0..60 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        definitions.insert(format!("d{n}"), json!({"anyOf": [next, next]}));
    }
    definitions.insert("d60".to_owned(), json!({"type": "string"}));
    let doubling = json!({"$ref": "#/$defs/d0", "$defs": definitions});
    let why = check(&doubling, "5").unwrap_err();
    assert!(why.contains("at most 0 can be checked"), "{why}");
    let document = json!({"items": {"type": "integer"}});
    let small = TopicSchema::new(&document, 0, STAMP, WorkMax { event: 64, ..WORK }).unwrap();
    assert_eq!(small.check(&body("[1,2,3]"), Quote::Value), Ok(()));
    let why = small.check(&body(&format!("[{}1]", "1,".repeat(100))), Quote::Value).unwrap_err().to_string();
    assert!(why.starts_with("it has 203 bytes: against this schema at most "), "{why}");
}

#[test]
fn payloads_that_no_reader_can_hold_do_not_match() {
    for payload in ["1e400", r#""\ud800""#] {
        assert!(check(&json!({}), payload).unwrap_err().contains("cannot be checked"), "{payload}");
    }
}

#[test]
fn tombstones_are_no_business_of_a_schema() {
    let strings = json!({"type": "string"});
    let plain = schema(&strings);
    let compacted = plain.with(SchemaStamp { tombstones: true, ..STAMP });
    let tombstone = EventBody { key: Some("k".into()), ..body("null") };
    assert_eq!(compacted.check(&tombstone, Quote::Value), Ok(()));
    assert!(plain.check(&tombstone, Quote::Value).is_err());
    assert!(compacted.check(&body("null"), Quote::Value).is_err(), "without a key it deletes nothing");
}

#[test]
fn a_stored_schema_that_cannot_be_used_lets_nothing_pass() {
    let stored = TopicSchema::stored(&json!({"type": "strnig"}), STAMP, WORK);
    let why = stored.check(&body("1"), Quote::Value).unwrap_err().to_string();
    assert!(why.starts_with("no event can match it until it is set anew: "), "{why}");
}
