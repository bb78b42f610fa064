//! Millrace as a library: one durable event loop on one file, or on a shared store. State changes and events commit together; handlers
//! take events by claim, retry with backoff, and dead-letter what they cannot handle.
//!
//! An event is a struct, and so is a piece of state; a handler is a function:
//!
//! ```
//! use millrace::{Entity, Event, HandlerContext, handlers, on_event};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Event, Serialize, Deserialize)]
//! #[event(priority = 10)]
//! struct OrderPlaced {
//!     order_id: String,
//!     total: f64,
//! }
//!
//! #[derive(Event, Serialize, Deserialize)]
//! struct PaymentCompleted {
//!     order_id: String,
//! }
//!
//! #[derive(Entity, Serialize, Deserialize)]
//! struct Payment {
//!     #[key]
//!     order_id: String,
//!     status: String,
//! }
//!
//! #[on_event(OrderPlaced, priority = 10)]
//! fn process_payment(ctx: &mut HandlerContext<OrderPlaced>) -> millrace::Result<()> {
//!     let order_id = ctx.event.order_id.clone();
//!     ctx.ensure(Payment { order_id: order_id.clone(), status: "completed".into() })?;
//!     ctx.emit(PaymentCompleted { order_id })
//! }
//!
//! assert_eq!(OrderPlaced::TYPE, "order.placed");
//! let handlers = handlers![process_payment];
//! assert_eq!(handlers[0].event_type, "order.placed");
//! assert!(handlers[0].id.ends_with(":process_payment"));
//! ```
//!
//! A [`Session`] commits, publishes and runs them; `examples/` has whole programs.
//!
//! Not in this crate: the server and its protocol (`millrace serve`), and the server's client (`millrace-client`).
//!
//! This crate only re-exports names. They are defined in `millrace-session`, `millrace-state` and `millrace-macros`;
//! the CQRS loop in [`os`] is in `millrace-kernel` and `millrace-child`, sandboxed programs (feature `wasm`) are in
//! `millrace-wasm`.

/// ```
/// use millrace::{Event, IntoOutgoing};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Event, Serialize, Deserialize)]
/// struct UserCreated {
///     user_id: String,
/// }
///
/// assert_eq!((UserCreated::TYPE, UserCreated::PRIORITY), ("user.created", 100));
///
/// // Another priority for this one event.
/// let urgent = UserCreated { user_id: "u1".into() }.with_priority(500).into_outgoing()?;
/// assert_eq!(urgent.payload.as_str(), r#"{"user_id":"u1"}"#);
/// assert_eq!(urgent.priority.0, 500);
/// # Ok::<(), millrace::EventError>(())
/// ```
pub use millrace_macros::Event;

/// ```
/// use millrace::{Entity, Stateful};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Entity, Serialize, Deserialize)]
/// struct User {
///     #[key]
///     id: u64,
///     email: Option<String>,
/// }
///
/// let user = User { id: 7, email: None };
/// assert_eq!((User::TYPE, user.key().as_str()), ("User", "7"));
///
/// // What the derive makes of the fields: names that a filter can use, with their types.
/// let reachable = User::fields().email.is_not_null() & User::fields().id.gt(5);
/// # let _ = reachable;
/// ```
pub use millrace_macros::Entity;

/// ```
/// use millrace::{Entity, Relation};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Entity, Serialize, Deserialize)]
/// struct User {
///     #[key]
///     id: String,
/// }
///
/// #[derive(Relation, Serialize, Deserialize)]
/// #[relation(left = User, right = User)]
/// struct Follows {
///     #[left_key]
///     follower: String,
///     #[right_key]
///     followed: String,
///     since: u32,
/// }
///
/// let edge = Follows { follower: "a".into(), followed: "b".into(), since: 2026 };
/// assert_eq!((edge.left_key(), edge.right_key(), edge.instance_key()), ("a".into(), "b".into(), "".into()));
/// ```
pub use millrace_macros::Relation;

/// ```
/// use millrace::{Event, HandlerContext, Start, handlers, on_event};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Event, Serialize, Deserialize)]
/// struct Signup {
///     email: String,
/// }
///
/// // Any error will do: its text is kept with the claim, and with the dead letter if it comes to that.
/// #[on_event(Signup, id = "welcome", from = "now")]
/// async fn send_welcome(ctx: &mut HandlerContext<Signup>) -> Result<(), String> {
///     if ctx.event.email.contains('@') { Ok(()) } else { Err("no address".to_owned()) }
/// }
///
/// let handlers = handlers![send_welcome];
/// assert_eq!((handlers[0].id.as_str(), handlers[0].start), ("welcome", Start::Now));
/// ```
pub use millrace_macros::on_event;

/// ```
/// use std::time::Duration;
///
/// use millrace::{Event, HandlerContext, HandlerOutcome, HandlerResult, OutcomeExt, handlers, on_event};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Event, Serialize, Deserialize)]
/// struct InvoiceDue {
///     cents: String,
///     replaced: bool,
///     bank_opens_in_ms: u64,
/// }
///
/// #[on_event(InvoiceDue)]
/// fn pay(ctx: &mut HandlerContext<InvoiceDue>) -> HandlerResult {
///     if ctx.event.replaced {
///         // Finished, and recorded with its reason; no dead letter.
///         return Err(HandlerOutcome::discard("the invoice was replaced").into());
///     }
///     if ctx.event.bank_opens_in_ms > 0 {
///         // Later, and this does not count as an attempt.
///         let after = Duration::from_millis(ctx.event.bank_opens_in_ms);
///         return Err(HandlerOutcome::snooze(after, "the bank is closed").into());
///     }
///     // No retry will make it a number: to the dead letters at once.
///     let cents: u64 = ctx.event.cents.parse().or_give_up()?;
///     // A failed attempt like any other, but this handler knows how long to wait.
///     charge(cents).or_retry_after(Duration::from_secs(90))?;
///     Ok(())
/// }
///
/// fn charge(cents: u64) -> Result<(), String> {
///     if cents > 0 { Ok(()) } else { Err("nothing to charge".to_owned()) }
/// }
///
/// // The same as values, for errors (such as `anyhow::Error`) that hide what they are made of.
/// #[on_event(InvoiceDue)]
/// async fn remind(ctx: &mut HandlerContext<InvoiceDue>) -> Result<HandlerOutcome, std::fmt::Error> {
///     Ok(if ctx.event.replaced { HandlerOutcome::discard("replaced") } else { HandlerOutcome::Done })
/// }
/// # let _ = handlers![pay, remind];
/// ```
pub use millrace_session::HandlerOutcome;

pub use millrace_session::model::{
    DeadLetterRow, EventId, HangingRow, Identity, Intent, Namespace, Offset, Operation, Partition, Priority,
    RunCounts, ScheduleRow, SessionId, SessionRow, StateChange, StateCommit, StateKind, Timestamp,
};
pub use millrace_session::{
    Called, CatchUp, Config, DeadLettered, Event, EventError, EventMeta, EventName, EventOptions, Handler,
    HandlerContext, HandlerError, HandlerOrder, HandlerResult, HandlerSettings, HandlerSpec,
    IntoHandlerResult, IntoOutgoing, LocalFuture, OutcomeExt, Outgoing, Published, Result, Running, Schedule,
    Session, SessionBuilder, SessionError, SharedSettings, Simulation, SimulationBuilder, SpecError, Start,
    StopHandle, StoreError, Transaction, VirtualClock, WithOptions, handlers, schedules,
};
pub use millrace_state::{
    CommitRecord, Drift, Edge, Edges, Entity, Field, Filter, Grouped, IntoIntents, Key, Migrated, Migration,
    MigrationError, MigrationPlan, NumberField, Operand, Order, OrderedField, Pages, Query, Relation, Schema,
    SchemaField, State, StateError, Stateful, Stored, TextField, TypeHistory, TypePlan, TypeVersion, Version,
};

/// Traces for OpenTelemetry: a session with a [`Tracer`](telemetry::Tracer) reports the runs of its handlers
/// (`SessionBuilder::tracer`, docs/operations.md).
pub mod telemetry {
    pub use millrace_telemetry::{Exporter, SendBatch, SendError, Tracer, TracerView};
}

/// The CQRS loop and its capabilities (`docs/capabilities.md`, `examples/ex8_capability.rs`). Requires the feature
/// `os`, which is on by default.
#[cfg(feature = "os")]
pub mod os {
    pub use millrace_child::{
        Child, ChildError, ChildLimits, ChildSettings, Children, Guard, become_guarded,
    };
    pub use millrace_kernel::{
        BusTopic, Capability, CapabilityError, ChangeError, Context, HandlerPlace, JsonText, KernelError,
        KernelHandle, KernelParts, KernelSettings, OsFault, OsMessage, OsReceiver, OsSender, SocketFile,
        SocketPathError, default_path,
    };
}

/// Sandboxed WebAssembly programs: the host, its default capabilities, and the ports by which programs reach a
/// session's store or take part in a handler's commit (`docs/effects.md`). Requires the feature `wasm`.
#[cfg(feature = "wasm")]
pub mod sandbox {
    pub use millrace_sandbox::{ContextPort, GuestValue, SessionPort};
    pub use millrace_wasm::capability::{
        BusPort, Environment, Folder, Grant, Grants, Input, Output, PortError, RandomSource, StorePort,
    };
    pub use millrace_wasm::{
        Clock, Continuation, EffectHandler, EffectOutcome, Generation, Handled, HandlerCall, Handlers, Host,
        HostOptions, Instance, InstanceLimits, Module, NoValue, OpKey, RunHandle, RunLimits, RunNumber,
        RunStart, Value, async_handler_fn, handler_fn, typed_async_handler_fn, typed_handler_fn,
    };
}
