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

mod act;
mod build;
mod config;
mod cron;
mod draw;
mod effect;
mod error;
mod flight;
mod give_up;
mod handler;
mod input;
mod keep;
mod manage;
mod run;
#[cfg(feature = "sabotage")]
mod sabotage;
mod schedule;
mod spec;
mod start;
mod sweep;
mod too_large;
mod worker;

pub use act::{DEAD_LETTER_TOPIC, ERROR_BYTES_LIMIT};
pub use build::{Topics, imperative};
pub use config::WorkerConfig;
pub use cron::Times;
pub use effect::{Effect, Note, Run};
pub use error::{CommitError, RunError, SpecError};
pub use input::{Input, Look, RunId, Seen, StateChanges, StreamSpan, Token};
pub use manage::{
    Forget, ForgetStep, REPLAYED_FROM, ReplayError, replay_dead_letter, replay_event, set_schedule_enabled,
};
#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;
pub use spec::{CatchUp, From, HandlerSpec, OutEvent, ScheduleSpec, WorkerIdentity};
pub use sweep::{Sweep, SweepRule, SweepStep, Swept};
pub use worker::Worker;
