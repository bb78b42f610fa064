//! The schema of a type, as text that can be stored and compared.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;

use super::shape::field_shapes;

/// The fields of a type under their names in JSON.
///
/// Types are compared by the shapes of their fields (what `Deserialize` accepts, including nested types). If a side has
/// no shapes, because it was stored by an older version or written by hand, spellings are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    pub type_name: &'static str,
    /// How the type of each field is spelled in the source, with the field's role: `String as key`.
    pub fields: BTreeMap<String, String>,
    /// The shape of each field, with its role.
    pub shapes: BTreeMap<String, String>,
    /// Fields that may be absent in JSON: `Option`s and those with `#[serde(default)]`.
    pub optional: BTreeSet<String>,
}

/// A field as the derive knows it.
#[derive(Clone, Copy, Debug)]
pub struct SchemaField {
    pub name: &'static str,
    pub spelled: &'static str,
    /// `key`, `left key of User` and so on; empty for a plain field.
    pub role: &'static str,
    /// The field has `#[serde(default)]`.
    pub defaulted: bool,
    /// serde decodes the field by a function of the user's, so being an `Option` does not make it optional.
    pub custom: bool,
}

impl Schema {
    /// Makes a schema from spellings alone.
    pub fn new(type_name: &'static str, fields: &[(&str, &str)]) -> Schema {
        let fields = fields.iter().map(|&(name, spelled)| (name.to_owned(), spelled.to_owned())).collect();
        Schema { type_name, fields, shapes: BTreeMap::new(), optional: BTreeSet::new() }
    }

    /// Makes a schema with shapes, which are found by tracing how the type is deserialized.
    pub fn of<T: DeserializeOwned>(type_name: &'static str, fields: &[SchemaField]) -> Schema {
        let mut found = field_shapes::<T>();
        let mut schema = Schema::new(type_name, &[]);
        for field in fields {
            let with_role = |text: &str| match field.role {
                "" => text.to_owned(),
                role => format!("{text} as {role}"),
            };
            let name = field.name.to_owned();
            schema.fields.insert(name.clone(), with_role(field.spelled));
            let shape = found.remove(field.name);
            let is_option = shape.as_ref().is_some_and(|shape| shape.starts_with("option "));
            if field.defaulted || (is_option && !field.custom) {
                schema.optional.insert(name.clone());
            }
            schema.shapes.extend(shape.map(|shape| (name, with_role(&shape))));
        }
        schema
    }
}
