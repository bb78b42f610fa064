//! The bus engine: topics, partitions, consumer groups, windows, acks, redelivery, dead letters, replay.
//!
//! The engine is a plain state machine: it is told the time and one input, and it returns effects: batches to commit,
//! pages to read, events to deliver, answers to give. Nothing is answered or delivered before the commit that it
//! depends on was confirmed.
//!
//! The engine has no clock, no socket, no file, no thread and no randomness; it does not parse frames and does not know
//! SQL. The same code runs in the server and in the simulator.
//!
//! Start with [`Bus`]: `handle` inputs, `settle` once, drain the effects, wait until `next_deadline`.

mod agenda;
mod bus;
mod delivery;
mod groups;
mod interface;
mod invariants;
mod lifecycle;
mod limits;
mod publishing;
mod stats;
mod topics;

pub use bus::Bus;
pub use delivery::dead_letter::REASON_BYTES_MAX;
pub use interface::effect::Effect;
pub use interface::input::{
    Ack, ConnId, From, GiveBack, Input, Nack, Publish, PublishBatch, ReadOutcome, ReadPage, Request,
    Subscribe, Token,
};
pub use interface::note::{Note, NotedPlace, Redelivery};
pub use interface::reply::{
    BusError, ConnectionView, ErrorCode, EventStanding, GroupDetail, GroupInspection, GroupView, GroupsView,
    MemberView, OffsetsView, OpenEvent, OpenEventState, PartitionView, Reply, ReplyTo, SchemaView,
    StandingState, TopicView,
};
pub use lifecycle::inspect::Inspection;
pub use lifecycle::restore::Snapshot;
pub use limits::BusLimits;
pub use millrace_model::DueBy;
pub use publishing::foreign_appends::{ForeignDelays, LogBounds, StoredTopic};
pub use stats::{Counters, GroupGauges, Stats, TopicCounters};
pub use topics::schema::{
    BreakingEvent, CheckedRange, Compared, DelayedCheck, Mismatch, PayloadMismatch, Quote, RetainedCheck,
    RetainedOutcome, SchemaError, SchemaStamp, SchemaVerdict, TopicSchema, UncomparedEvents,
};
