//! Types of values at the boundary. Generation B describes them in the module; for generation A, whose modules turn
//! values of the wrong type into zero, the host's handlers may declare them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use crate::value::Value;

/// The key that names the variant in a union's map.
const VARIANT_KEY: &str = "$variant";

/// How often types may refer to one another before a value is reached; a type that is defined as itself ends here.
const FIT_DEPTH_MAX: usize = 256;

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueSchema {
    /// Any value: the `MsgPack` type of generation A.
    Any,
    Bool,
    I32,
    I64,
    F32,
    F64,
    Void,
    Str,
    Bytes,
    Array(Arc<ValueSchema>),
    /// A map keyed by field name, without other keys.
    Record(Vec<RecordField>),
    /// A map with the fields of one variant, and its name under `$variant`.
    Union(Vec<Variant>),
    /// A type defined elsewhere in the same [`TypeNames`], by its number.
    Ref(i64),
}

/// A field of a record or variant. An optional field may be absent.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordField {
    pub name: String,
    pub schema: Arc<ValueSchema>,
    pub optional: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    pub name: String,
    pub fields: Vec<RecordField>,
}

/// Types that others refer to by number.
pub type TypeNames = BTreeMap<i64, Arc<ValueSchema>>;

/// Parameters and result of an operation or export.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signature {
    pub params: Vec<Arc<ValueSchema>>,
    pub result: Option<Arc<ValueSchema>>,
    pub names: TypeNames,
}

/// A value of the wrong type: where, and both types.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at} expected {expected}, got {got}")]
pub struct TypeMismatch {
    pub at: String,
    pub expected: String,
    pub got: String,
}

impl ValueSchema {
    /// Returns the value in the form that modules read: integers become floats and lists of small integers become bytes
    /// where the type says so; absent optional fields are left out.
    ///
    /// # Errors
    ///
    /// Fails if the value is not of this type; `at` names its place in the message and is written only then.
    pub fn fit(&self, value: Value, names: &TypeNames, at: &dyn Display) -> Result<Value, TypeMismatch> {
        self.fit_at(value, names, at, 0)
    }

    fn fit_at(
        &self,
        value: Value,
        names: &TypeNames,
        at: &dyn Display,
        depth: usize,
    ) -> Result<Value, TypeMismatch> {
        let deeper = depth + 1;
        match (self, value) {
            (_, value) if depth > FIT_DEPTH_MAX => Err(self.mismatch(&value, at)),
            (ValueSchema::Any, value)
            | (ValueSchema::Bool, value @ Value::Bool(_))
            | (ValueSchema::I64, value @ Value::Int(_))
            | (ValueSchema::Str, value @ Value::Str(_))
            | (ValueSchema::Void, value @ Value::Nil)
            | (ValueSchema::Bytes, value @ Value::Bin(_))
            | (ValueSchema::F32 | ValueSchema::F64, value @ (Value::F32(_) | Value::F64(_))) => Ok(value),
            (ValueSchema::I32, Value::Int(number)) if i32::try_from(number).is_ok() => Ok(Value::Int(number)),
            // Exports of type bool return 0 and 1.
            (ValueSchema::Bool, Value::Int(number @ (0 | 1))) => Ok(Value::Bool(number == 1)),
            // Modules of generation A read an integer as the float 0.0; those of generation B convert it as is done
            // here.
            #[allow(clippy::cast_precision_loss)]
            (ValueSchema::F32 | ValueSchema::F64, Value::Int(number)) => Ok(Value::F64(number as f64)),
            (ValueSchema::Bytes, Value::Array(items)) => {
                bytes_of(items).map_err(|items| self.mismatch(&items, at))
            }
            (ValueSchema::Array(element), Value::Array(items)) => {
                let items = items.into_iter().enumerate();
                let items = items
                    .map(|(index, item)| element.fit_at(item, names, &format_args!("{at}[{index}]"), deeper));
                Ok(Value::Array(items.collect::<Result<_, _>>()?))
            }
            (ValueSchema::Record(fields), Value::Map(entries)) => {
                fit_fields(fields, entries, names, at, deeper)
            }
            (ValueSchema::Union(variants), Value::Map(entries)) => {
                fit_variant(variants, entries, names, at, deeper)
            }
            (ValueSchema::Ref(number), value) => match names.get(number) {
                Some(schema) => schema.fit_at(value, names, at, deeper),
                None => Err(self.mismatch(&value, at)),
            },
            (_, value) => Err(self.mismatch(&value, at)),
        }
    }

    fn mismatch(&self, value: &Value, at: &dyn Display) -> TypeMismatch {
        let got = match (self, value) {
            (ValueSchema::I32, Value::Int(number)) => format!("{number}, which is outside of its range"),
            _ => value.type_name().to_owned(),
        };
        TypeMismatch { at: at.to_string(), expected: self.name(), got }
    }

    fn name(&self) -> String {
        match self {
            ValueSchema::Any => "any value".into(),
            ValueSchema::Bool => "bool".into(),
            ValueSchema::I32 => "i32".into(),
            ValueSchema::I64 => "i64".into(),
            ValueSchema::F32 => "f32".into(),
            ValueSchema::F64 => "f64".into(),
            ValueSchema::Void => "void".into(),
            ValueSchema::Str => "string".into(),
            ValueSchema::Bytes => "bytes".into(),
            ValueSchema::Array(_) => "array".into(),
            ValueSchema::Record(_) => "record".into(),
            ValueSchema::Union(variants) => {
                let names: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
                format!("one of the variants {}", names.join(", "))
            }
            ValueSchema::Ref(number) => format!("type {number}"),
        }
    }
}

fn bytes_of(items: Vec<Value>) -> Result<Value, Value> {
    let byte = |item: &Value| item.as_i64().and_then(|number| u8::try_from(number).ok());
    let bytes: Option<Vec<u8>> = items.iter().map(byte).collect();
    bytes.map(Value::Bin).ok_or(Value::Array(items))
}

fn fit_fields(
    fields: &[RecordField],
    mut entries: Vec<(Value, Value)>,
    names: &TypeNames,
    at: &dyn Display,
    depth: usize,
) -> Result<Value, TypeMismatch> {
    let mut fitted = Vec::with_capacity(fields.len().min(entries.len()));
    for field in fields {
        let position = entries.iter().position(|(key, _)| key.as_str() == Some(&field.name));
        match position.map(|position| entries.swap_remove(position)) {
            None | Some((_, Value::Nil)) if field.optional => {}
            Some((key, value)) => {
                let at = format_args!("{at}.{}", field.name);
                fitted.push((key, field.schema.fit_at(value, names, &at, depth)?));
            }
            None => {
                let at = format!("{at}.{}", field.name);
                return Err(TypeMismatch { at, expected: field.schema.name(), got: "nothing".into() });
            }
        }
    }
    match entries.first() {
        None => Ok(Value::Map(fitted)),
        Some((key, _)) => {
            let known: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
            let expected = format!("only the keys {}", known.join(", "));
            Err(TypeMismatch { at: at.to_string(), expected, got: format!("the key {key}") })
        }
    }
}

fn fit_variant(
    variants: &[Variant],
    mut entries: Vec<(Value, Value)>,
    names: &TypeNames,
    at: &dyn Display,
    depth: usize,
) -> Result<Value, TypeMismatch> {
    let position = entries.iter().position(|(key, _)| key.as_str() == Some(VARIANT_KEY));
    let tag = position.map_or(Value::Nil, |position| entries.swap_remove(position).1);
    let Some(variant) = variants.iter().find(|variant| tag.as_str() == Some(&variant.name)) else {
        let expected = ValueSchema::Union(variants.to_vec()).name();
        return Err(TypeMismatch { at: format!("{at}.{VARIANT_KEY}"), expected, got: tag.to_string() });
    };
    match fit_fields(&variant.fields, entries, names, at, depth)? {
        Value::Map(mut fitted) => {
            fitted.insert(0, (Value::from(VARIANT_KEY), tag));
            Ok(Value::Map(fitted))
        }
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fit(schema: &ValueSchema, json: &serde_json::Value) -> Result<Value, String> {
        schema.fit(Value::from_json(json), &TypeNames::new(), &"arg0").map_err(|error| error.to_string())
    }

    fn field(name: &str, schema: ValueSchema, optional: bool) -> RecordField {
        RecordField { name: name.into(), schema: Arc::new(schema), optional }
    }

    #[test]
    fn wrong_types_are_named() {
        assert_eq!(fit(&ValueSchema::I32, &json!("x")).unwrap_err(), "arg0 expected i32, got string");
        let range = "arg0 expected i32, got 2147483648, which is outside of its range";
        assert_eq!(fit(&ValueSchema::I32, &json!(2_147_483_648_i64)).unwrap_err(), range);
        let list = ValueSchema::Array(Arc::new(ValueSchema::Bool));
        assert_eq!(fit(&list, &json!([true, 3])).unwrap_err(), "arg0[1] expected bool, got integer");
    }

    #[test]
    fn values_take_the_form_that_modules_read() {
        assert_eq!(fit(&ValueSchema::F32, &json!(2)), Ok(Value::F64(2.0)));
        assert_eq!(fit(&ValueSchema::Bytes, &json!([0, 255])), Ok(Value::Bin(vec![0, 255])));
        assert_eq!(fit(&ValueSchema::Bytes, &json!([256])).unwrap_err(), "arg0 expected bytes, got array");
        assert_eq!(fit(&ValueSchema::Bool, &json!(1)), Ok(Value::Bool(true)));
    }

    #[test]
    fn records_are_exact_but_for_optional_fields() {
        let record = ValueSchema::Record(vec![
            field("a", ValueSchema::I32, false),
            field("b", ValueSchema::Str, true),
        ]);
        assert_eq!(fit(&record, &json!({"b": null, "a": 1})), Ok(Value::record([("a", Value::Int(1))])));
        assert_eq!(fit(&record, &json!({"b": "x"})).unwrap_err(), "arg0.a expected i32, got nothing");
        assert_eq!(
            fit(&record, &json!({"a": 1, "c": 1})).unwrap_err(),
            "arg0 expected only the keys a, b, got the key \"c\""
        );
    }

    #[test]
    fn unions_are_told_apart_by_their_variant() {
        let variant =
            |name: &str, schema| Variant { name: name.into(), fields: vec![field("value", schema, false)] };
        let union = ValueSchema::Union(vec![
            variant("LogInt", ValueSchema::I32),
            variant("LogString", ValueSchema::Str),
        ]);
        assert!(fit(&union, &json!({"value": "x", "$variant": "LogString"})).is_ok());
        assert_eq!(
            fit(&union, &json!({"value": "x", "$variant": "LogInt"})).unwrap_err(),
            "arg0.value expected i32, got string"
        );
        assert_eq!(
            fit(&union, &json!({"value": 1})).unwrap_err(),
            "arg0.$variant expected one of the variants LogInt, LogString, got null"
        );
    }

    #[test]
    fn recursive_types_are_followed_and_a_type_that_is_itself_ends() {
        let list = ValueSchema::Record(vec![field("next", ValueSchema::Ref(1), true)]);
        let names = TypeNames::from([(1, Arc::new(list)), (2, Arc::new(ValueSchema::Ref(2)))]);
        let value = Value::from_json(&json!({"next": {"next": {}}}));
        assert!(ValueSchema::Ref(1).fit(value.clone(), &names, &"arg0").is_ok());
        assert!(ValueSchema::Ref(2).fit(value.clone(), &names, &"arg0").is_err());
        assert!(ValueSchema::Ref(3).fit(value, &names, &"arg0").is_err());
    }
}
