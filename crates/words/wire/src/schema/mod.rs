//! JSON Schemas of the bodies and frames, for the documents that describe the interface.
//!
//! Shapes that serde writes derive their schema. Shapes that are read and written by hand are put together here from
//! the same table of fields the reader quotes in its errors, so a field has one description everywhere.

mod field;
mod shapes;

pub(crate) use shapes::TopicSettings;
pub use shapes::{BatchEvent, Done, EventIn, TopicPatchBody};

use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::code::ErrorCode;
use crate::field::Field;

/// An object with these fields; others may stand beside them, as everywhere in the protocol.
pub(crate) fn object(needs: &[Field], may: &[Field]) -> Value {
    let properties: Map<String, Value> =
        needs.iter().chain(may).map(|field| (field.name().to_owned(), field.schema())).collect();
    let required: Vec<&str> = needs.iter().map(|field| field.name()).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

pub(crate) fn schema(value: Value) -> Schema {
    // Everything in this module is an object.
    Schema::try_from(value).unwrap_or_default()
}

/// For fields of derived shapes whose type lives in `millrace-model`: `#[schemars(schema_with = "...")]`.
macro_rules! field_schemas {
    ($($function:ident $field:ident,)*) => {
        $(pub(crate) fn $function(_: &mut SchemaGenerator) -> Schema {
            schema(Field::$field.schema())
        })*
    };
}

field_schemas! {
    durability Durability,
    ack_mode TopicAckMode,
    topic Topic,
    group Group,
    partition Partition,
    offset Offset,
    ts Ts,
    filter Filter,
    json_schema Schema,
}

pub(crate) fn names(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "array", "items": Field::Group.schema()}))
}

pub(crate) fn code(_: &mut SchemaGenerator) -> Schema {
    schema(codes())
}

pub(crate) fn codes() -> Value {
    let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    json!({"type": "string", "enum": codes})
}
