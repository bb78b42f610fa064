//! The engine of the CQRS loop (RFC 0032): lanes, turns, routing by kind, pending requests, timers, request timeouts.
//!
//! A plain state machine: [`Router::handle`] takes the time and one input and puts a message into its lane; each
//! [`Router::turn`] takes one message from the lanes, routes it, does the bookkeeping and returns. Whatever the shell
//! has to do comes out as an [`Effect`].
//!
//! The engine runs no capability, never blocks and parses no lines; it has no clock, socket, process, thread or
//! randomness.
//!
//! Start with [`Router`]: `install` manifests, `handle` inputs, `turn` until idle, drain the effects, wait until
//! `next_deadline`.

mod builtin;
mod counters;
mod deadlines;
mod drops;
mod effect;
mod emit;
mod events;
mod firing;
mod input;
mod lanes;
mod limits;
mod lineage;
mod lossy_json;
mod manifest;
mod manifest_describe;
mod manifest_json;
mod messages;
mod note;
mod observe;
mod outcome;
mod pending;
mod queries;
mod route;
mod router;
mod sabotage;
mod schema;
mod schema_refs;
mod stop;
mod supervise;
mod table;
mod template;
mod timer_queue;
mod timers;
mod trace;

pub use counters::{Counters, Gauges};
pub use effect::{Effect, Settled};
pub use input::{By, CapabilityId, ConnId, DeliveryId, Input, NotVouched, Receipt, Token};
pub use limits::RouterLimits;
pub use manifest::{Branch, BusTopic, CAPABILITY_NAME_BYTES_MAX, Manifest};
pub use manifest_json::{BRANCHES_MAX, BUS_TOPICS_MAX, MANIFEST_BYTES_MAX, ManifestError, SUBSCRIBES_MAX};
pub use note::Note;
pub use queries::Takes;
pub use router::Router;
#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;
pub use schema::{Schema, SchemaError};
pub use table::BootError;
pub use template::scheduled;
pub use timers::TIMER_PREFIX;
pub use trace::{Party, Step, TraceQuery, TraceRecord};
