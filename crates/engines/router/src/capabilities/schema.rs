//! JSON Schemas of `data`: compiled once, checked against every message.

use std::fmt;
use std::sync::Arc;

use millrace_model::JsonText;
use serde_json::Value;

use crate::capabilities::lossy_json::lossy_json;
use crate::capabilities::schema_refs::endless;

/// How many violations an error names.
const VIOLATIONS_SHOWN_MAX: usize = 3;
/// How many violations are collected to choose those from. They are sorted, so that the same message always gets the
/// same error.
const VIOLATIONS_SEEN_MAX: usize = 64;
/// Longest text of one violation, which may quote the message.
const VIOLATION_BYTES_MAX: usize = 240;
/// Members of a schema that only describe: a schema with no other members accepts everything.
const ANNOTATIONS: [&str; 10] = [
    "$schema",
    "$id",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
];

/// A schema and its compiled form. `Schema::any()` accepts everything and costs nothing.
#[derive(Clone)]
pub struct Schema {
    pub(crate) document: Arc<Value>,
    /// `None` if the schema accepts everything.
    pub(crate) validator: Option<Arc<jsonschema::Validator>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no JSON Schema: {0}")]
pub struct SchemaError(pub String);

/// Why data does not fit a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaMismatch {
    #[error("data cannot be checked: {0}")]
    Unreadable(String),
    /// Each violation says what is wrong and where, such as `data/age: "x" is not of type "integer"`.
    #[error("{}{}", violations.join("; "), if *are_more { "; and more" } else { "" })]
    Violations { violations: Vec<String>, are_more: bool },
}

impl Schema {
    pub fn any() -> Schema {
        Schema { document: Arc::new(Value::Bool(true)), validator: None }
    }

    /// Draft 2020-12 unless `$schema` says otherwise. References may only point into the document itself.
    pub fn new(document: Value) -> Result<Schema, SchemaError> {
        if let Some(reference) = endless(&document) {
            let why = "refers to itself or cannot be followed, and a check must end";
            return Err(SchemaError(cut(format!(
                "{reference} {why}: refer to parts of the document (#/...) that do not"
            ))));
        }
        let validator = jsonschema::options()
            .offline()
            .build(&document)
            .map_err(|error| SchemaError(cut(error.to_string())))?;
        let validator = (!accepts_everything(&document)).then(|| Arc::new(validator));
        Ok(Schema { document: Arc::new(document), validator })
    }

    /// A schema that is shown but never checked: for data that the loop does not inspect, and for outputs.
    pub fn shown(document: Value) -> Schema {
        Schema { document: Arc::new(document), validator: None }
    }

    pub fn document(&self) -> &Value {
        &self.document
    }

    pub fn check(&self, data: &JsonText) -> Result<(), SchemaMismatch> {
        let Some(validator) = &self.validator else {
            return Ok(());
        };
        let text = data.as_str();
        // A number beyond the range of doubles and a lone half of a surrogate pair are legal JSON that no `Value` can
        // hold.
        let value: Value =
            match serde_json::from_str(text).or_else(|_| serde_json::from_str(&lossy_json(text))) {
                Ok(value) => value,
                Err(error) => return Err(SchemaMismatch::Unreadable(error.to_string())),
            };
        if validator.is_valid(&value) {
            return Ok(());
        }
        let mut violations: Vec<String> = validator
            .iter_errors(&value)
            .take(VIOLATIONS_SEEN_MAX)
            .map(|error| cut(format!("data{}: {error}", error.instance_path())))
            .collect();
        violations.sort();
        violations.dedup();
        let are_more = violations.len() > VIOLATIONS_SHOWN_MAX;
        violations.truncate(VIOLATIONS_SHOWN_MAX);
        Err(SchemaMismatch::Violations { violations, are_more })
    }
}

fn accepts_everything(document: &Value) -> bool {
    match document {
        Value::Bool(accepts) => *accepts,
        Value::Object(members) => members.keys().all(|name| ANNOTATIONS.contains(&name.as_str())),
        _ => false,
    }
}

fn cut(mut text: String) -> String {
    if text.len() > VIOLATION_BYTES_MAX {
        text.truncate(text.floor_char_boundary(VIOLATION_BYTES_MAX));
        text.push_str("...");
    }
    text
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", self.document)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: Value, data: &str) -> Result<(), String> {
        let checked = Schema::new(schema).unwrap().check(&JsonText::parse(data).unwrap());
        checked.map_err(|mismatch| mismatch.to_string())
    }

    #[test]
    fn what_fits_passes_and_what_does_not_is_named_with_its_place() {
        let schema = json!({
            "type": "object",
            "properties": { "name": { "type": "string" }, "tags": { "items": { "maxLength": 3 } } },
            "required": ["name"],
            "additionalProperties": false,
        });
        assert_eq!(check(schema.clone(), r#"{"name":"x"}"#), Ok(()));
        assert_eq!(
            check(schema.clone(), r#"{"name":5,"tags":["abcd"]}"#),
            Err("data/name: 5 is not of type \"string\"; data/tags/0: \"abcd\" is longer than 3 characters"
                .into())
        );
        assert_eq!(check(schema.clone(), "{}"), Err("data: \"name\" is a required property".into()));
        let several = check(schema, r#"{"a":1,"name":1,"tags":["aaaa","bbbb","cccc"]}"#).unwrap_err();
        assert!(several.ends_with("; and more"), "{several}");
    }

    #[test]
    fn a_violation_that_quotes_much_is_cut() {
        let text = check(json!({ "type": "integer" }), &format!("\"{}\"", "ü".repeat(10_000))).unwrap_err();
        assert!(text.len() < 300 && text.ends_with("..."), "{text}");
    }

    #[test]
    fn schemas_that_accept_everything_do_not_even_read() {
        for schema in [json!(true), json!({}), json!({ "description": "whatever", "title": "x" })] {
            let schema = Schema::new(schema).unwrap();
            assert!(schema.validator.is_none());
            let unread = JsonText::from_stored("no JSON at all".into());
            assert_eq!(schema.check(&unread), Ok(()));
        }
        assert_eq!(Schema::any().document(), &json!(true));
        assert!(check(json!(false), "1").is_err());
    }

    #[test]
    fn values_that_no_reader_can_hold_are_checked_as_the_nearest_that_one_can() {
        let number = json!({ "type": "object", "properties": { "n": { "type": "number" } } });
        for data in [r#"{"n":1e400}"#, r#"{"n":-1e400}"#, r#"{"n":12345678901234567890123}"#, r#"{"n":-0}"#] {
            assert_eq!(check(number.clone(), data), Ok(()), "{data}");
        }
        assert!(check(json!({ "type": "number", "maximum": 5 }), "1e400").is_err());
        assert_eq!(check(json!({ "type": "number", "maximum": 5 }), "-1e400"), Ok(()));
        assert_eq!(check(json!({ "type": "string", "maxLength": 1 }), r#""\ud800""#), Ok(()));
        assert!(check(json!({ "type": "string", "maxLength": 1 }), r#""\ud800\ud800""#).is_err());
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        for bad in [
            json!(5),
            json!("string"),
            json!({ "type": "strnig" }),
            json!({ "type": 7 }),
            json!({ "pattern": "(" }),
            json!({ "title": 5 }),
            json!({ "$ref": "https://example.com/other.json" }),
        ] {
            let error = Schema::new(bad.clone()).unwrap_err();
            assert!(error.to_string().starts_with("is no JSON Schema: "), "{bad}: {error}");
        }
    }
}
