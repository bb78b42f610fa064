//! Millrace as a library: one durable event loop on one file.
//!
//! Start with [`HandlerContext`] and [`macro@on_event`].

pub use millrace_macros::{Entity, Event, Relation, on_event};
pub use millrace_session::model::{
    EventId, Identity, Intent, Operation, StateChange, StateCommit, StateKind,
};
pub use millrace_session::state::{
    CommitRecord, Drift, Edge, Edges, Migrated, Migration, MigrationError, Pages, Plan, Query, State, Stored,
    TypePlan, Version,
};
pub use millrace_session::{
    Called, DeadLettered, Entity, Event, EventError, EventOptions, Field, Filter, Handler, HandlerContext,
    HandlerError, HandlerResult, HandlerSpec, IntoHandlerResult, IntoIntents, IntoOutgoing, Key, LocalFuture,
    NumberField, Operand, Order, OrderedField, Outgoing, Relation, Result, Schema, SessionError, Start,
    StateError, Stateful, TextField, WithOptions, handlers, schedules,
};
