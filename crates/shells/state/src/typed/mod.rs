//! The traits of user types that are stored as state: entities, relations, their fields and schemas, and the filters and
//! declarations made of them. Those of events and handlers are in `millrace-session`.

mod canonical;
mod entity;
mod field;
mod filter;
mod intents;
mod schema;
mod shape;
mod update;

pub use canonical::{CanonicalError, canonical, canonical_text};
pub use entity::{Entity, Key, Relation, Stateful};
pub use field::{Field, NumberField, Operand, Order, OrderedField, TextField};
pub use filter::Filter;
pub(crate) use filter::{Node, compare};
pub use intents::{Declared, IntoIntents, KEY_BYTES_MAX, Many, One, entity_identity, relation_identity};
pub use schema::{Schema, SchemaField};
pub(crate) use update::apply_to;
