//! The traits of entity and relation types.

use std::fmt::Display;

use millrace_model::{Identity, StateKind};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::schema::Schema;

/// The common part of entities and relations: an identity, fields, a schema.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither an entity nor a relation",
    note = "derive it: #[derive(Entity, Serialize, Deserialize)] with one #[key] field"
)]
pub trait Stateful: Serialize + DeserializeOwned + Send + 'static {
    const KIND: StateKind;
    const TYPE: &'static str;
    /// Has a [`super::Field`] per field, for filters and orders.
    type Fields: Copy + Default;
    /// The fields that make up the key of a row, in the key's order, as far as their JSON and their part of the key are
    /// the same text: filters for one value of them need not read other rows.
    const KEY_FIELDS: &'static [&'static str] = &[];
    /// Whether relations of this type have an instance key.
    const HAS_INSTANCE_KEY: bool = false;

    fn identity(&self) -> Identity;

    fn schema() -> Schema;

    fn fields() -> Self::Fields {
        Self::Fields::default()
    }
}

/// An object with a key. Implemented by `#[derive(Entity)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an entity",
    note = "derive it: #[derive(Entity, Serialize, Deserialize)] with one #[key] field"
)]
pub trait Entity: Stateful {
    fn key(&self) -> String;
}

/// A typed edge from one entity to another. Implemented by `#[derive(Relation)]`. The endpoints need not exist.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a relation",
    note = "derive it: #[derive(Relation, Serialize, Deserialize)] with #[relation(left = A, right = B)]"
)]
pub trait Relation: Stateful {
    type Left: Entity;
    type Right: Entity;

    fn left_key(&self) -> String;
    fn right_key(&self) -> String;
    /// Distinguishes several edges between the same two entities; empty for types that declare none.
    fn instance_key(&self) -> String {
        String::new()
    }
}

/// Keys are stored as text: an integer key 7 is `"7"`.
pub trait Key {
    fn into_key(self) -> String;
}

impl<T: Display> Key for T {
    fn into_key(self) -> String {
        self.to_string()
    }
}
