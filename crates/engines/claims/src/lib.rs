//! The engine of durable handlers: claims, leases, retries, dead letters, schedules, sessions, retention.
//!
//! A plain state machine, like the bus: given the time and one input, it returns effects: batches to commit, rows to
//! read, handlers to run, answers to give. Many workers in many processes work on one store; the checks in the batches
//! they commit keep them apart, not this code.
//!
//! The engine has no clock, thread, file or randomness; it does not call handlers and does not know their types. The
//! store itself chooses the events of a claim, inside the commit.
//!
//! Start with [`Worker`]: `handle` inputs, drain the effects, wait until `next_deadline`. [`imperative`] builds the
//! commits of sessions outside of handlers.

mod action;
mod build;
mod config;
mod conflict;
mod cron;
mod due;
mod effect;
mod error;
mod event_writer;
mod give_up;
mod handler;
mod input;
mod keep;
mod last_commit;
mod manage;
mod marks;
mod outcome;
mod pause;
mod prng;
mod rate;
mod replay;
mod run;
#[cfg(feature = "sabotage")]
mod sabotage;
mod schedule;
mod settings;
mod shared_commit;
mod spec;
mod start;
mod stranded;
mod suspects;
mod sweep;
mod timeout;
mod too_large;
mod worker;

pub use action::{DEAD_LETTER_TOPIC, ERROR_BYTES_LIMIT};
pub use build::{OwnEvent, Topics, imperative, imperative_events};
pub use config::WorkerConfig;
pub use conflict::CommitChecks;
pub use cron::Times;
pub use effect::{Effect, HandlerRun, Note};
pub use error::{CommitError, RunError, SpecError};
pub use event_writer::DELAY_MS_MAX;
pub use input::{Expected, Input, ReadQuery, ReadResult, RunId, StateChanges, StreamSpan, Token};
pub use manage::{Forget, ForgetStep, set_handler_paused, set_schedule_enabled};
pub use outcome::AFTER_MS_MAX;
pub use replay::{DeadLetter, REPLAYED_FROM, ReplayError, publish_again};
#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;
pub use schedule::PLANNED_AT;
pub use settings::HandlerSettings;
pub use spec::{CatchUp, From, HandlerSpec, OutEvent, ScheduleSpec, WorkerIdentity};
pub use sweep::{Sweep, SweepRule, SweepStep, Swept};
pub use worker::Worker;
