//! The traits of user types: events, entities, relations, and the handlers that take events.

mod canonical;
mod dead_lettered;
mod entity;
mod event;
mod field;
mod filter;
mod handler;
mod intents;
mod lists;
mod names;
mod outcome;
mod outgoing;
mod schema;
mod shape;
mod update;

pub use canonical::{CanonicalError, canonical, canonical_text};
pub use dead_lettered::DeadLettered;
pub use entity::{Entity, Key, Relation, Stateful};
pub use event::Event;
pub use field::{Field, NumberField, Operand, Order, OrderedField, TextField};
pub use filter::Filter;
pub(crate) use filter::{Node, compare};
pub use handler::{
    Called, Handler, HandlerError, HandlerResult, HandlerSpec, IntoHandlerResult, LocalFuture, Start,
};
pub use intents::{Declared, IntoIntents, KEY_BYTES_MAX, Many, One, entity_identity, relation_identity};
pub use names::EventName;
pub(crate) use names::EventNames;
pub use outcome::{HandlerOutcome, OutcomeExt};
pub use outgoing::{EventError, EventOptions, IntoOutgoing, Outgoing, WithOptions};
pub use schema::{Schema, SchemaField};
pub(crate) use update::apply_to;
