//! What entity and relation types promise.

use std::fmt::Display;

use millrace_model::{Identity, StateKind};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::schema::Schema;

/// What entities and relations share: an identity, fields, a schema.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither an entity nor a relation",
    note = "derive it: #[derive(Entity, Serialize, Deserialize)] with one #[key] field"
)]
pub trait Stateful: Serialize + DeserializeOwned + Send + 'static {
    const KIND: StateKind;
    const TYPE: &'static str;
    /// One [`super::Field`] per field, for filters and orders.
    type Fields: Copy + Default;
    /// The fields that make up the key of a row, in its order, as far as their JSON and their part of the key are the same
    /// text: filters that ask for one value of them need not look at other rows.
    const KEY_FIELDS: &'static [&'static str] = &[];
    /// Relations of this type have an instance key.
    const HAS_INSTANCE_KEY: bool = false;

    fn identity(&self) -> Identity;

    fn schema() -> Schema;

    fn fields() -> Self::Fields {
        Self::Fields::default()
    }
}

/// A thing with a key. Written by `#[derive(Entity)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an entity",
    note = "derive it: #[derive(Entity, Serialize, Deserialize)] with one #[key] field"
)]
pub trait Entity: Stateful {
    fn key(&self) -> String;
}

/// A typed edge from one entity to another. Written by `#[derive(Relation)]`. The endpoints need not exist.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a relation",
    note = "derive it: #[derive(Relation, Serialize, Deserialize)] with #[relation(left = A, right = B)]"
)]
pub trait Relation: Stateful {
    type Left: Entity;
    type Right: Entity;

    fn left_key(&self) -> String;
    fn right_key(&self) -> String;
    /// Tells apart several edges between the same two; empty for types that declare none.
    fn instance_key(&self) -> String {
        String::new()
    }
}

/// Keys are kept as text: an integer key 7 is `"7"`.
pub trait Key {
    fn into_key(self) -> String;
}

impl<T: Display> Key for T {
    fn into_key(self) -> String {
        self.to_string()
    }
}
