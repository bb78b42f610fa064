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
//!
//! - `worker.rs`: the state, and the dispatch of each input; `requests.rs`: what the worker has asked of its shell.
//! - `invariants.rs`: what must hold between two inputs.
//! - `interface`: inputs, effects, settings, errors.
//! - `lifecycle`: what a session reads first, how it registers, stays alive and stops.
//! - `claiming`: the events that each handler holds, and when it claims more.
//! - `running`: runs of handlers, their commits, leases, marks and timeouts.
//! - `endings`: how an event ends for a handler.
//! - `commits`: actions, the shared commit that writes them, and how batches are built.
//! - `schedules`: cron, and fires that happen once.
//! - `upkeep`: retention, and delayed events that are due.
//! - `admin`: batches of people, made without a worker.

mod admin;
mod claiming;
mod commits;
mod endings;
mod interface;
mod invariants;
mod lifecycle;
mod prng;
mod requests;
mod running;
mod schedules;
mod upkeep;
mod worker;

pub use admin::manage::{Forget, ForgetStep, request_schedule_run, set_handler_paused, set_schedule_enabled};
pub use admin::replay::{DeadLetter, REPLAYED_FROM, ReplayError, publish_again};
pub use commits::action::DEAD_LETTER_TOPIC;
pub use commits::batch_builder::{OwnEvent, Topics, imperative, imperative_events};
pub use commits::event_writer::DELAY_MS_MAX;
pub use endings::conflict::CommitChecks;
pub use endings::outcome::AFTER_MS_MAX;
pub use endings::retry::ERROR_BYTES_LIMIT;
pub use interface::config::WorkerConfig;
pub use interface::effect::{Effect, HandlerRun, Note};
pub use interface::error::{CommitError, RunError, SpecError};
pub use interface::input::{Expected, Input, ReadQuery, ReadResult, RunId, StateChanges, StreamSpan, Token};
pub use interface::settings::HandlerSettings;
pub use interface::spec::{CatchUp, From, HandlerSpec, OutEvent, ScheduleSpec, WorkerIdentity};
pub use schedules::cron::{CRON_CHARS_MAX, Times};
pub use schedules::cron_words::cron_words;
pub use schedules::schedule::PLANNED_AT;
pub use upkeep::sweep::{Sweep, SweepRule, SweepStep, Swept};
pub use worker::{Worker, WorkerCounts};
