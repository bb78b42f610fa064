//! Durable handlers for programs that embed Millrace: typed events, state beside them, explicit commits.
//!
//! [`typed`] has the traits of user types (the derives of `millrace-macros` implement them), [`state`] reads and
//! migrates entities and relations over the store port, [`admin`] shows the work of handlers from outside.
//!
//! Not in this crate: decisions about claims, leases and retries (the `claims` engine makes them), the derives
//! (`millrace-macros`), and the public interface (`millrace` re-exports an explicit list).
//!
//! How a session runs: the loop (`shell`) owns the engine and a mailbox. Handlers are called on threads of their own
//! and commit through the mailbox; a single committer thread merges the batches of the loop and of all other callers in
//! the process.
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

/// The basic types that the public types are made of.
pub use millrace_model as model;

/// Every limit and interval of a session, with its default.
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
