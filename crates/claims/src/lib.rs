//! The engine of durable handlers: claims, leases, retries, dead letters, schedules, sessions, retention.
//!
//! A plain state machine, as the bus is one: told the time and one input, it returns effects: batches to commit,
//! things to look up, handlers to run, answers to give. Many workers in many processes work on one store; what keeps
//! them apart is in the batches they commit, never in this code.
//!
//! What it does not do: it has no clock, thread, file or randomness, it does not call handlers and does not know their
//! types. Which events a claim takes is found by the store inside the commit.
//!
//! Start with [`Worker`]: `handle` inputs, drain the effects, wait until `next_deadline`. What is committed outside of
//! handlers is built by [`imperative`].

mod build;
mod config;
mod effect;
mod error;
mod input;
mod sabotage;
mod spec;
mod worker;

pub use build::{Topics, imperative};
pub use config::WorkerConfig;
pub use effect::{Effect, Note, Run};
pub use error::{CommitError, RunError, SpecError};
pub use input::{Input, Look, RunId, Seen, StateChanges, StreamSpan, Token};
#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;
pub use spec::{CatchUp, From, HandlerSpec, OutEvent, ScheduleSpec, WorkerIdentity};
pub use worker::Worker;
