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

mod capabilities;
mod counters;
mod interface;
mod invariants;
mod limits;
mod reports;
mod router;
mod routing;
mod stop;
mod timing;

pub use capabilities::manifest::{Branch, BusTopic, CAPABILITY_NAME_BYTES_MAX, Manifest};
pub use capabilities::manifest_json::{
    BRANCHES_MAX, BUS_TOPICS_MAX, MANIFEST_BYTES_MAX, ManifestError, SUBSCRIBES_MAX,
};
pub use capabilities::schema::{Schema, SchemaError, SchemaMismatch};
pub use capabilities::table::{BootError, CapabilityState};
pub use counters::{Counters, Gauges};
pub use interface::effect::{Effect, Settled};
pub use interface::input::{
    CapabilityId, CommitToken, ConnId, DeliveryId, Input, NotStored, NotTrusted, Receipt,
};
pub use interface::note::Note;
pub use limits::RouterLimits;
pub use reports::queries::Takes;
pub use reports::trace::{Party, TraceQuery, TraceRecord, TraceStep};
pub use router::Router;
pub use timing::template::scheduled;
pub use timing::timer_list::{TimerPlace, TimerView};
pub use timing::timers::TIMER_PREFIX;
