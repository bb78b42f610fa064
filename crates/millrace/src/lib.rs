//! Millrace as a library: one durable event loop on one file.
//!
//! Start with [`HandlerContext`] and [`macro@on_event`].

pub use millrace_macros::{Entity, Event, Relation, on_event};
pub use millrace_session::model::{
    EventId, Identity, Intent, Operation, StateChange, StateCommit, StateKind,
};
pub use millrace_session::{
    Called, DeadLettered, Entity, Event, EventError, EventOptions, Field, Handler, HandlerContext,
    HandlerError, HandlerResult, HandlerSpec, IntoHandlerResult, IntoIntents, IntoOutgoing, Key, LocalFuture,
    Outgoing, Relation, Result, Schema, SessionError, Start, StateError, Stateful, WithOptions, handlers,
    schedules,
};
