//! The data types of Millrace: values with their rules, and nothing else.
//!
//! Every crate uses these types. A value that exists is valid: names are checked when they are created, JSON text is
//! known to be one line of bounded depth, an offset is never zero when it names an event.
//!
//! This crate has no clocks, files, sockets, threads or randomness: time and random numbers are passed as arguments.
//!
//! Start with [`Event`], then [`Batch`], the only thing that a store is ever asked to write.

mod access;
mod batch;
mod boot;
mod claim;
mod digits;
mod due;
mod elapsed;
mod event;
mod finding;
mod group_access;
mod handler_keys;
mod handler_record;
mod id;
mod json;
mod name;
mod os;
mod partition;
mod reading;
mod record;
mod state;
mod steady;
mod stream;
mod system;
mod text_in_row;
mod time;
mod topic_access;
mod topic_config;
mod trace;

pub use access::{ACL_ENTRIES_MAX, AccessError, AccessList, Action, Actor, Namespaces, Principal, home};
pub use batch::{
    Append, Appended, BATCH_BYTES_MAX, Batch, Check, Delay, Done, Durability, EVENT_BYTES_MAX, Op, Outcome,
    Refusal, Space, TakenId,
};
pub use boot::{Boot, BootId, BootMark};
pub use claim::{
    BEHIND_PER_EVENT_MAX, Claim, ClaimState, Claimed, HandlerOrder, LANE_PRIORITY_MAX, OrderKey, RunMark,
    Suspicion, Ticket, lane_of,
};
pub use due::{DueBy, DueEvent, set_aside};
pub use elapsed::{ELAPSED_APART_MS, Elapsed, ElapsedTime};
pub use event::{Event, EventBody, Headers, Lineage, NewEvent, PRIORITY_DEFAULT, Priority};
pub use finding::{FINDINGS_MAX, Finding, Findings, Weight};
pub use group_access::{
    GROUP_ENTRIES_MAX, GROUP_LISTS_MAX, GroupAccess, GroupAccessError, GroupAccessPatch, GroupKey,
};
pub use handler_record::{
    ClaimRow, DeadLetterRow, Ending, FinishedRow, HandlerRow, HangingRow, HeadRow, LaneRow, RunCounts,
    ScheduleRow, SchemaRow, SessionRow, StateCommitRow, VersionRow,
};
pub use id::{EventId, IdError};
pub use json::{JSON_DEPTH_MAX, JsonError, JsonText, last_members};
pub use name::{DLQ_SUFFIX, Group, HandlerId, NameError, NameKind, Namespace, SessionId, TopicName};
pub use os::{
    OS_ID_BYTES_MAX, OS_TYPE_BYTES_MAX, OsFault, OsId, OsKind, OsMessage, OsMetadata, OsNameError, OsType,
};
pub use partition::{PARTITIONS_MAX, key_hash, partition_of};
pub use reading::{KeyRange, Page, ReadLimit, Row};
pub use record::{
    AHEAD_MAX, AgesRow, AttemptRow, Bitmap, CursorRow, DueRow, ElapsedRow, GroupRow, RowError, TopicRow,
    TopicSchemaRow, keys,
};
pub use state::{Identity, Intent, Operation, Reconcile, StateChange, StateCommit, StateKind};
pub use steady::{AgeGuard, CLOCK_SETTLE_MS, CLOCK_STEP_MS, ClockNews, SteadyClock};
pub use stream::{Offset, Partition, Stream, TopicKey};
pub use system::{
    AUDIT_TOPIC, DEAD_LETTER_MIRROR, METRICS_TOPIC, SYSTEM_PREFIX, SYSTEM_TOPICS, TRACE_TOPIC, system_readers,
};
pub use time::{DeliverAt, Mono, Now, TICK_MS, Timestamp};
pub use topic_access::TopicAccess;
pub use topic_config::{AckMode, ConfigError, Filter, TopicConfig, TopicPatch};
pub use trace::{TRACEPARENT, TraceId};
