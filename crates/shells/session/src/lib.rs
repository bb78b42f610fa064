//! Durable handlers for programs that embed Millrace: typed events, state beside them, explicit commits.
//!
//! [`typed`] holds what user types promise (the derives of `millrace-macros` write the promises down), [`state`]
//! reads and migrates entities and relations over the store port, [`admin`] looks at the work of handlers from outside.
//!
//! What is not here: decisions about claims, leases and retries (the `claims` engine makes them), the derives
//! (`millrace-macros`), the face users see (`millrace` re-exports by an explicit list).
//!
//! How it runs: the loop (`shell`) owns the engine and a mailbox. Handlers are called on threads of their own and commit
//! through the mailbox; batches of the loop and of everybody else in the process are merged by one committer thread.
//!
//! Start with [`Session`] and [`HandlerContext`].

pub mod admin;
mod context;
mod data;
mod draft;
mod error;
mod imperative;
mod roster;
mod schedule;
mod session;
mod shell;
pub mod state;
mod transaction;
pub mod typed;

/// The words that the public types are made of.
pub use millrace_model as model;

/// Every bound and interval of a session, with its default.
pub use millrace_claims::WorkerConfig as Config;
pub use millrace_claims::{CatchUp, HandlerSettings, SpecError};
pub use millrace_model::HandlerOrder;

pub use context::{Core, EventMeta, HandlerContext};
pub use error::{Result, SessionError};
pub use imperative::Published;
pub use roster::LIST_MAX;
pub use schedule::Schedule;
pub use session::Session;
pub use shell::{Running, Simulation, StopHandle, VirtualClock};
pub use state::{State, StateError};
pub use transaction::Transaction;
pub use typed::{
    Called, DeadLettered, Declared, Entity, Event, EventError, EventName, EventOptions, Field, Filter,
    Handler, HandlerError, HandlerOutcome, HandlerResult, HandlerSpec, IntoHandlerResult, IntoIntents,
    IntoOutgoing, Key, LocalFuture, NumberField, Operand, Order, OrderedField, OutcomeExt, Outgoing,
    Relation, Schema, SchemaField, Start, Stateful, TextField, WithOptions,
};
