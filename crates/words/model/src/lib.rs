//! The data types of Millrace: values with their rules, and nothing else.
//!
//! Every crate uses these types. A value that exists is valid: names are checked when they are created, JSON text is
//! known to be one line of bounded depth, an offset is never zero when it names an event.
//!
//! This crate has no clocks, files, sockets, threads or randomness: time and random numbers are passed as arguments.
//!
//! Start with [`Event`], then [`Batch`], the only thing that a store is ever asked to write.

mod clocks;
mod handling;
mod log;
mod never;
mod os;
mod rows;
mod topics;

pub use clocks::boot::{Boot, BootId, BootMark};
pub use clocks::elapsed::{ELAPSED_APART_MS, Elapsed, ElapsedTime};
pub use clocks::steady::{AgeGuard, CLOCK_SETTLE_MS, CLOCK_STEP_MS, ClockNews, SteadyClock};
pub use clocks::time::{DeliverAt, Mono, Now, TICK_MS, Timestamp};
pub use handling::claim::{
    BEHIND_PER_EVENT_MAX, Claim, ClaimState, Claimed, HandlerOrder, LANE_PRIORITY_MAX, OrderKey, RunMark,
    Suspicion, Ticket, lane_of,
};
pub use handling::due::{DueBy, DueEvent, set_aside};
pub use handling::handler_record::{
    ClaimRow, DeadLetterRow, Ending, FinishedRow, HandlerRow, HangingRow, HeadRow, LaneRow, RunCounts,
    ScheduleRow, SchemaRow, SessionRow, StateCommitRow, VersionRow,
};
pub use handling::state::{Identity, Intent, Operation, Reconcile, StateChange, StateCommit, StateKind};
pub use log::event::{Event, EventBody, Headers, Lineage, NewEvent, PRIORITY_DEFAULT, Priority};
pub use log::id::{EventId, IdError};
pub use log::json::{JSON_DEPTH_MAX, JsonError, JsonText, last_members};
pub use log::partition::{PARTITIONS_MAX, key_hash, partition_of};
pub use log::reading::{KeyRange, Page, ReadLimit, Row};
pub use log::stream::{Offset, Partition, Stream, TopicKey};
pub use log::trace::{TRACEPARENT, TraceId, may_be_traced};
pub use never::Broken;
pub use os::{
    OS_ID_BYTES_MAX, OS_TYPE_BYTES_MAX, OsFault, OsId, OsKind, OsMessage, OsMetadata, OsNameError, OsType,
};
pub use rows::batch::{
    Append, Appended, BATCH_BYTES_MAX, Batch, Check, Delay, Done, Durability, EVENT_BYTES_MAX, Op, Outcome,
    Refusal, Space, TakenId,
};
pub use rows::finding::{FINDINGS_MAX, Finding, Findings, Weight};
pub use rows::record::{
    AHEAD_MAX, AgesRow, AttemptRow, Bitmap, CursorRow, DueRow, ElapsedRow, GroupRow, RowError, TopicRow,
    TopicSchemaRow, keys,
};
pub use topics::access::{
    ACL_ENTRIES_MAX, AccessError, AccessList, Action, Actor, Namespaces, Principal, home,
};
pub use topics::group_access::{
    GROUP_ENTRIES_MAX, GROUP_LISTS_MAX, GroupAccess, GroupAccessError, GroupAccessPatch, GroupKey,
};
pub use topics::name::{DLQ_SUFFIX, Group, HandlerId, NameError, NameKind, Namespace, SessionId, TopicName};
pub use topics::requester::Requester;
pub use topics::system::{
    AUDIT_TOPIC, DEAD_LETTER_MIRROR, METRICS_TOPIC, SYSTEM_PREFIX, SYSTEM_TOPICS, TRACE_TOPIC, system_readers,
};
pub use topics::topic_access::TopicAccess;
pub use topics::topic_config::{AckMode, ConfigError, Filter, TopicConfig, TopicPatch};
