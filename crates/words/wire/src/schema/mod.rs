//! JSON Schemas of the bodies and frames, for the OpenAPI and AsyncAPI documents.
//!
//! Types that serde serializes derive their schema. The schemas of types that are read and written by hand are built
//! here from the same table of fields that errors quote, so a field has the same description everywhere.

mod field;
mod shapes;

pub(crate) use shapes::TopicSettings;
pub use shapes::{BatchEvent, Done, EventIn, TopicPatchBody};

use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::code::ErrorCode;
use crate::field::Field;

/// Returns the schema of an object with these fields (`needs` are required); other fields are allowed, as everywhere in
/// the protocol.
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

/// Schemas for fields of derived types whose own type is defined in `millrace-model`: `#[schemars(schema_with =
/// "...")]`.
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
    leader Leader,
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
