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

mod access;
mod ack;
mod admin;
mod ages;
mod bus;
mod committed;
mod compaction;
mod connection;
mod cursor;
mod dead_letter;
mod deliver;
mod due;
mod effect;
mod fetch;
mod flush;
mod foreign_appends;
mod group;
mod group_admin;
mod input;
mod inspect;
mod limits;
mod note;
mod pending;
mod publish;
mod reply;
mod restore;
mod retention;
mod rows;
mod sabotage;
mod schema;
mod schema_change;
mod seek;
mod stats;
mod sticky;
mod stop;
mod subscribe;
mod system;
mod topic;
mod totals;

pub use bus::Bus;
pub use dead_letter::REASON_BYTES_MAX;
pub use effect::Effect;
pub use foreign_appends::{DelayedElsewhere, Reach, StoredTopic};
pub use input::{
    Ack, By, ConnId, From, GiveBack, Input, Nack, Publish, PublishBatch, ReadOutcome, ReadPage, Request,
    Subscribe, Token,
};
pub use inspect::Inspection;
pub use limits::BusLimits;
pub use millrace_model::DueBy;
pub use note::{Note, NotedPlace, Redelivery};
pub use reply::{
    BusError, ErrorCode, GroupDetail, GroupView, GroupsView, OffsetsView, PartitionView, Reply, ReplyTo,
    SchemaView, TopicView,
};
pub use restore::Snapshot;
#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;
pub use schema::{
    BreakingEvent, CheckedRange, Compared, DelayedCheck, Mismatch, Quote, RetainedCheck, RetainedOutcome,
    SchemaError, SchemaStamp, SchemaVerdict, TopicSchema, UncomparedEvents,
};
pub use stats::{Counters, GroupGauges, Stats, TopicCounters};
