//! Durable handlers for programs that embed Millrace: typed events, state beside them, explicit commits.
//!
//! [`Event`] and [`HandlerSpec`] are the traits of user types; the derives of `millrace-macros` implement them.
//!
//! Not in this crate: decisions about claims, leases and retries (the `claims` engine makes them), entities, relations
//! and queries (`millrace-state`), what operators see and mend (`millrace-admin`), the derives (`millrace-macros`), and
//! the public interface (`millrace` re-exports an explicit list).
//!
//! How a session runs: the loop (`shell`) owns the engine and a mailbox. Handlers are called on threads of their own
//! and commit through the mailbox; a single committer thread merges the batches of the loop and of all other callers in
//! the process.
//!
//! Start with [`Session`] and [`HandlerContext`].

mod builder;
mod context;
mod data;
mod draft;
mod error;
mod imperative;
mod lists;
mod schedule;
mod session;
mod shell;
mod traces;
mod transaction;
mod typed;

/// The basic types that the public types are made of.
pub use millrace_model as model;

/// Every limit and interval of a session, with its default.
pub use millrace_claims::WorkerConfig as Config;
pub use millrace_claims::{CatchUp, HandlerSettings, SpecError};
pub use millrace_model::HandlerOrder;

/// How a store fails, and the settings of a store that several processes share.
pub use millrace_store::StoreError;
pub use millrace_stores::SharedSettings;

pub use builder::SessionBuilder;
pub use context::{Core, EventMeta, HandlerContext};
pub use error::{Result, SessionError};
pub use imperative::Published;
pub use lists::LIST_MAX;
pub use schedule::Schedule;
pub use session::Session;
pub use shell::{Running, Simulation, SimulationBuilder, StopHandle, VirtualClock};
pub use transaction::Transaction;
pub use typed::{
    Called, DeadLettered, Event, EventError, EventName, EventOptions, Handler, HandlerError, HandlerOutcome,
    HandlerResult, HandlerSpec, IntoHandlerResult, IntoOutgoing, LocalFuture, OutcomeExt, Outgoing, Start,
    WithOptions,
};
