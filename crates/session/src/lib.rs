//! Durable handlers for programs that embed Millrace: typed events, state beside them, explicit commits.
//!
//! [`typed`] holds what user types promise (the derives of `millrace-macros` write the promises down), [`state`]
//! reads and migrates entities and relations over the store port.
//!
//! What is not here: decisions about claims, leases and retries (the `claims` engine makes them), the derives
//! (`millrace-macros`), the face users see (`millrace` re-exports by an explicit list).
//!
//! Start with [`Event`] and [`HandlerContext`].

mod context;
mod error;
pub mod state;
pub mod typed;

/// The words that the public types are made of.
pub use millrace_model as model;

pub use context::{Core, HandlerContext};
pub use error::{Result, SessionError};
pub use state::{State, StateError};
pub use typed::{
    Called, DeadLettered, Declared, Entity, Event, EventError, EventOptions, Field, Filter, Handler,
    HandlerError, HandlerResult, HandlerSpec, IntoHandlerResult, IntoIntents, IntoOutgoing, Key, LocalFuture,
    NumberField, Operand, Order, OrderedField, Outgoing, Relation, Schema, Start, Stateful, TextField,
    WithOptions,
};
