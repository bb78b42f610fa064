//! The traits of user types: events, and the handlers that take them. Those of state are in `millrace-state`.

mod dead_lettered;
mod event;
mod handler;
mod lists;
mod names;
mod outcome;
mod outgoing;

pub use dead_lettered::DeadLettered;
pub use event::Event;
pub use handler::{
    Called, Handler, HandlerError, HandlerResult, HandlerSpec, IntoHandlerResult, LocalFuture, Start,
};
pub use names::EventName;
pub(crate) use names::EventNames;
pub use outcome::{HandlerOutcome, OutcomeExt};
pub use outgoing::{EventError, EventOptions, IntoOutgoing, Outgoing, WithOptions};
