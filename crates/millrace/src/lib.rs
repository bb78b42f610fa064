//! Millrace as a library: one durable event loop on one file. State changes and events commit together; handlers
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
//! What is not here: the server and its protocol (`millrace serve`), and its client (`millrace-client`).
//!
//! This crate is a list of names: what they are lives in `millrace-session`, `millrace-macros` and, for the CQRS loop in
//! [`os`], `millrace-actors`.

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

pub use millrace_session::model::{
    DeadLetterRow, EventId, Identity, Intent, Namespace, Offset, Operation, Partition, Priority, ScheduleRow,
    SessionId, SessionRow, StateChange, StateCommit, StateKind, Timestamp,
};
pub use millrace_session::state::{
    CommitRecord, Drift, Edge, Edges, Grouped, Migrated, Migration, MigrationError, Pages, Plan, Query,
    State, Stored, TypePlan, Version,
};
pub use millrace_session::{
    Called, CatchUp, Config, DeadLettered, Entity, Event, EventError, EventMeta, EventName, EventOptions,
    Field, Filter, Handler, HandlerContext, HandlerError, HandlerResult, HandlerSpec, IntoHandlerResult,
    IntoIntents, IntoOutgoing, Key, LocalFuture, NumberField, Operand, Order, OrderedField, Outgoing,
    Published, Relation, Result, Running, Schedule, Schema, Session, SessionError, Simulation, SpecError,
    Start, StateError, Stateful, StopHandle, TextField, VirtualClock, WithOptions, handlers, schedules,
};

/// The CQRS loop and its capabilities (`docs/capabilities.md`, `examples/ex8_capability.rs`).
pub mod os {
    pub use millrace_actors::{
        BusTopic, Capability, CapabilityError, ChangeError, Child, ChildError, ChildLimits, ChildSettings,
        Children, Context, Guard, JsonText, LoopError, LoopHandle, LoopParts, LoopSettings, OsFault,
        OsMessage, OsReceiver, OsSender, Place, PlaceError, SocketPlace, become_guarded, default_path,
    };
}
