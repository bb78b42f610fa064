//! Answers and refusals of the bus.

use std::collections::BTreeMap;

use millrace_model::{
    Action, Actor, ConfigError, Durability, EventId, Filter, Group, Offset, Partition, Timestamp,
    TopicConfig, TopicKey,
};

use crate::interface::input::ConnId;
use crate::stats::Stats;
use crate::topics::schema::{BreakingEvent, Compared, SchemaError, UncomparedEvents};

/// Where the answer to a request goes. The number (`request`, `call`) is the requester's own: the bus returns it and
/// never looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplyTo {
    /// A connection, which can also subscribe, ack and receive.
    Conn { conn: ConnId, request: u64 },
    /// A single call (HTTP) that gets one answer and is forgotten.
    Call { call: u64 },
    /// Nobody waits for an answer.
    Nobody,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The event is as durable as `durability` says. For a delayed event `due` is set and `at` is not.
    Published {
        topic: TopicKey,
        id: EventId,
        at: Option<(Partition, Offset)>,
        due: Option<Timestamp>,
        durability: Durability,
    },
    PublishedBatch {
        topic: TopicKey,
        offsets: Vec<(Partition, Offset)>,
        /// How many of them were stored before, under the same id.
        duplicates: usize,
        durability: Durability,
    },
    Subscribed {
        topic: TopicKey,
        group: Group,
        partitions: Vec<(Partition, Offset)>,
    },
    Unsubscribed {
        topic: TopicKey,
        group: Group,
    },
    Acked,
    Nacked,
    FlowAdded,
    Topic {
        created: bool,
        /// Boxed to keep replies small: answers to publishes are moved through the same queues, many times more often.
        topic: Box<TopicView>,
    },
    TopicDeleted {
        topic: TopicKey,
    },
    Topics {
        topics: Vec<TopicView>,
        /// There are more topics after this page.
        more: bool,
    },
    Offsets(OffsetsView),
    Groups(GroupsView),
    GroupDeleted {
        topic: TopicKey,
        group: Group,
    },
    /// Where the group now stands: the next offset of each partition that moved.
    Sought {
        topic: TopicKey,
        group: Group,
        partitions: Vec<(Partition, Offset)>,
    },
    GroupPaused {
        topic: TopicKey,
        group: Group,
        paused: bool,
    },
    LettersRemoved {
        topic: TopicKey,
        partition: Partition,
    },
    GroupInspected(Box<GroupInspection>),
    /// In the order of connections.
    ConnectionsInspected(Vec<ConnectionView>),
    EventStandings(Vec<EventStanding>),
    Stats(Box<Stats>),
    Refused(BusError),
}

#[derive(Clone, Debug, PartialEq)]
pub struct TopicView {
    pub topic: TopicKey,
    pub config: TopicConfig,
    pub partitions: Vec<PartitionView>,
    pub groups: Vec<Group>,
    /// Set for a topic that has or had a schema.
    pub schema: Option<SchemaView>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaView {
    /// The topic's incarnation ([`millrace_model::TopicRow::incarnation`]): the rows of its schema versions are stored
    /// under it.
    pub incarnation: u64,
    /// The version in force.
    pub version: Option<u32>,
    /// In the answer to a change of the schema: the events that the new schema was compared with.
    pub checked: Compared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionView {
    pub partition: Partition,
    pub start: Offset,
    pub next: Offset,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OffsetsView {
    pub topic: TopicKey,
    pub partitions: Vec<(PartitionView, BTreeMap<Group, GroupView>)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupView {
    /// The durable commit.
    pub committed: Offset,
    /// When that commit was written, if known.
    pub updated: Option<Timestamp>,
    pub lag: u64,
    pub inflight: u64,
}

/// The groups of a topic, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupsView {
    pub topic: TopicKey,
    pub groups: Vec<GroupDetail>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GroupDetail {
    pub group: Group,
    pub members: usize,
    /// An operator holds the group's deliveries back.
    pub paused: bool,
    pub created: Timestamp,
    pub filter: Filter,
    pub partitions: Vec<(Partition, GroupView)>,
}

/// A group with its members and the events that it was sent, or that wait to be sent again.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupInspection {
    pub topic: TopicKey,
    pub detail: GroupDetail,
    /// How long a member may hold an event.
    pub ack_timeout_ms: u64,
    pub members: Vec<MemberView>,
    /// In the order of partitions and offsets.
    pub open: Vec<OpenEvent>,
    /// There are more of them.
    pub more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberView {
    pub conn: ConnId,
    pub window: u32,
    pub inflight: u32,
    /// Delivery credits left; `None` if only the window bounds deliveries.
    pub credits: Option<u64>,
    /// The connection's outbound buffer is full.
    pub congested: bool,
    /// How long the member has held the event that it has held longest.
    pub oldest_ms: Option<u64>,
}

/// An open connection, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionView {
    pub conn: ConnId,
    pub subscriptions: usize,
    /// Events that the connection was sent and that are not done, over all its subscriptions.
    pub inflight: u64,
}

/// An event that a group was sent, or that waits to be sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenEvent {
    pub partition: Partition,
    pub offset: Offset,
    /// `None` if the event was dropped from memory.
    pub id: Option<EventId>,
    /// The delivery under way included.
    pub attempts: u32,
    pub state: OpenEventState,
    /// Why the last delivery failed.
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenEventState {
    /// A member holds it and has this long left.
    Leased { conn: ConnId, left_ms: u64 },
    /// The event is sent again as soon as a member has room, or an earlier event of its key is done.
    Ready,
    /// The event is sent again after this time.
    Later { left_ms: u64 },
}

/// The standing of an event with a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventStanding {
    pub group: Group,
    pub state: StandingState,
    pub attempts: u32,
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandingState {
    Waiting,
    InFlight(ConnId),
    /// The group is through with it: it was acked, filtered out, skipped by a seek, or became a dead letter.
    Done,
}

/// Classes of refusals, as the protocol spells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    BadTopic,
    BadGroup,
    BadFrame,
    Forbidden,
    UnknownOffset,
    FilterConflict,
    GroupBusy,
    LimitReached,
    TooLarge,
    SchemaMismatch,
    StorageFailed,
    ShuttingDown,
}

impl ErrorCode {
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorCode::BadTopic => "bad_topic",
            ErrorCode::BadGroup => "bad_group",
            ErrorCode::BadFrame => "bad_frame",
            ErrorCode::Forbidden => "forbidden",
            ErrorCode::UnknownOffset => "unknown_offset",
            ErrorCode::FilterConflict => "filter_conflict",
            ErrorCode::GroupBusy => "group_busy",
            ErrorCode::LimitReached => "limit_reached",
            ErrorCode::TooLarge => "too_large",
            ErrorCode::SchemaMismatch => "schema_mismatch",
            ErrorCode::StorageFailed => "storage_failed",
            ErrorCode::ShuttingDown => "shutting_down",
        }
    }
}

/// Why a request was refused. Each message says what was wrong and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    #[error("there is no topic {}: publish to it, subscribe to it or create it first", .0.topic())]
    UnknownTopic(TopicKey),
    #[error("there is no topic {} and topics are not created automatically here: create it first", .0.topic())]
    NoAutoCreate(TopicKey),
    #[error("topic {} exists already", .0.topic())]
    TopicExists(TopicKey),
    #[error("topic {} was deleted", .0.topic())]
    TopicDeleted(TopicKey),
    #[error("agent {agent} may not {action} topic {at}: its access list does not let it", at = .topic.topic())]
    Forbidden { topic: TopicKey, agent: Actor, action: Action },
    #[error(
        "agent {agent} may not use group {group} of topic {at}: the group's access list does not let it",
        at = .topic.topic()
    )]
    GroupForbidden { topic: TopicKey, group: Group, agent: Actor },
    /// Refusal for a principal that must not learn that the topic exists: `shown` is what it would be told if there
    /// were no such topic, `why` is the real reason, for the audit.
    #[error("{shown}")]
    Hidden { shown: Box<BusError>, why: Box<BusError> },
    #[error("{0}")]
    BadConfig(ConfigError),
    #[error("there is no group {group} on topic {at}", at = .topic.topic())]
    UnknownGroup { topic: TopicKey, group: Group },
    #[error("the group or its topic was deleted meanwhile")]
    GroupGone,
    #[error("this connection is not a member of group {group} on topic {at}: subscribe first", at = .topic.topic())]
    NotAMember { topic: TopicKey, group: Group },
    #[error("topic {at} has no partition {partition}: it has {partitions}", at = .topic.topic())]
    UnknownPartition { topic: TopicKey, partition: Partition, partitions: u32 },
    #[error("offset {offset} of partition {partition} is not in flight for group {group}: {why}")]
    UnknownOffset { topic: TopicKey, group: Group, partition: Partition, offset: Offset, why: &'static str },
    #[error(
        "group {group} on topic {at} has {filter}: all its members must give the same one",
        at = .topic.topic(), filter = shown(.existing)
    )]
    FilterConflict { topic: TopicKey, group: Group, existing: Filter },
    #[error(
        "members of group {group} on topic {at} hold unacknowledged events: try again when they are done", at = .topic.topic()
    )]
    GroupBusy { topic: TopicKey, group: Group },
    #[error(
        "group {group} on topic {at} has members (connections subscribed to it: {members}): unsubscribe them first", at = .topic.topic()
    )]
    GroupHasMembers { topic: TopicKey, group: Group, members: usize },
    #[error("the limit of {max} {what} is reached")]
    LimitReached { what: &'static str, max: u64 },
    #[error("this takes {more} more {what}, and {held} of at most {max} are there")]
    TotalReached { what: &'static str, held: u64, more: u64, max: u64 },
    #[error("{what} is {found}: at most {max} is allowed")]
    OutOfRange { what: &'static str, found: u64, max: u64 },
    #[error("the batch holds {bytes} bytes: at most {max} are allowed")]
    BatchTooLarge { bytes: usize, max: usize },
    #[error("the batch holds {events} events: at most {max} are allowed")]
    BatchTooLong { events: usize, max: usize },
    #[error("the batch holds no events: give at least one")]
    EmptyBatch,
    #[error("{0}")]
    BadSchema(SchemaError),
    #[error("topic {} holds no dead letters: name the topic of letters", .0.topic())]
    NoLetters(TopicKey),
    #[error("topic {} cannot have a schema: what the server writes to it is not checked", .0.topic())]
    NoSchemaHere(TopicKey),
    #[error(
        "{what} does not match version {version} of the schema of topic {at}: {why}",
        what = payload_of(*.index), at = .topic.topic()
    )]
    SchemaMismatch { topic: TopicKey, version: u32, index: Option<usize>, why: String },
    #[error(
        "the new schema of topic {at} does not fit {what}: {why}; to set it all the same, PATCH the topic with force=true",
        at = .topic.topic(), what = name_of(*.event)
    )]
    SchemaBreaks { topic: TopicKey, event: BreakingEvent, why: String },
    #[error(
        "the new schema of topic {at} fits all events it was compared with, but {what} were not compared: raise \
         schema-check-events-max, schema-check-bytes-max or schema-check-delayed-rows-max of the server; to set it all the \
         same, PATCH the topic with force=true",
        at = .topic.topic(), what = names_of(*.events)
    )]
    SchemaUncompared { topic: TopicKey, events: UncomparedEvents },
    #[error(
        "the {bytes} bytes of payloads are too much to be checked at once against the schema of topic {at}: send at most {max} at a time",
        at = .topic.topic()
    )]
    SchemaWork { topic: TopicKey, bytes: u64, max: u64 },
    #[error(
        "another change of the schema of topic {} is being compared with its events: try again when it is done", .0.topic()
    )]
    SchemaChanging(TopicKey),
    #[error("the events of topic {} could not be read to compare them with the new schema: try again", .0.topic())]
    EventsUnread(TopicKey),
    #[error("this request needs a connection: send it over the WebSocket")]
    NeedsConnection,
    #[error(
        "the store has failed and nothing is written any more ({0}): the server ends, send again when it is back"
    )]
    StorageFailed(String),
    #[error("the store cannot be read just now ({0}): send it again")]
    Unreadable(String),
    #[error("{0}: nothing is published until there is room, send again later; acks and reads go on")]
    NoSpace(String),
    #[error("the server is shutting down: connect again later")]
    ShuttingDown,
}

impl BusError {
    /// Returns the real reason, for the audit: it must not be shown to the requester.
    pub fn why(&self) -> &BusError {
        match self {
            BusError::Hidden { why, .. } => why,
            other => other,
        }
    }

    /// Hides this refusal behind `as_if`, for a requester that must not learn that the topic exists.
    pub fn hidden(self, as_if: BusError) -> BusError {
        BusError::Hidden { shown: Box::new(as_if), why: Box::new(self) }
    }

    pub fn code(&self) -> ErrorCode {
        match self {
            BusError::UnknownTopic(_)
            | BusError::NoAutoCreate(_)
            | BusError::TopicExists(_)
            | BusError::TopicDeleted(_)
            | BusError::GroupGone => ErrorCode::BadTopic,
            BusError::Forbidden { .. } | BusError::GroupForbidden { .. } => ErrorCode::Forbidden,
            BusError::Hidden { shown, .. } => shown.code(),
            BusError::UnknownGroup { .. } | BusError::NotAMember { .. } => ErrorCode::BadGroup,
            BusError::SchemaMismatch { .. }
            | BusError::SchemaBreaks { .. }
            | BusError::SchemaUncompared { .. } => ErrorCode::SchemaMismatch,
            BusError::BadConfig(_)
            | BusError::BadSchema(_)
            | BusError::NoSchemaHere(_)
            | BusError::NoLetters(_)
            | BusError::OutOfRange { .. }
            | BusError::EmptyBatch
            | BusError::NeedsConnection => ErrorCode::BadFrame,
            BusError::UnknownPartition { .. } | BusError::UnknownOffset { .. } => ErrorCode::UnknownOffset,
            BusError::FilterConflict { .. } => ErrorCode::FilterConflict,
            BusError::GroupBusy { .. } | BusError::GroupHasMembers { .. } => ErrorCode::GroupBusy,
            BusError::LimitReached { .. }
            | BusError::TotalReached { .. }
            | BusError::BatchTooLong { .. }
            | BusError::SchemaWork { .. }
            | BusError::SchemaChanging(_) => ErrorCode::LimitReached,
            BusError::BatchTooLarge { .. } => ErrorCode::TooLarge,
            BusError::StorageFailed(_)
            | BusError::EventsUnread(_)
            | BusError::Unreadable(_)
            | BusError::NoSpace(_) => ErrorCode::StorageFailed,
            BusError::ShuttingDown => ErrorCode::ShuttingDown,
        }
    }
}

/// Names a payload, with its place if it was in a batch.
fn payload_of(index: Option<usize>) -> String {
    index.map_or_else(|| "the payload".to_owned(), |index| format!("the payload of events[{index}]"))
}

fn name_of(event: BreakingEvent) -> String {
    match event {
        BreakingEvent::Retained(partition, offset) => {
            format!("the event at partition {partition}, offset {offset}")
        }
        BreakingEvent::Delayed => "a delayed event that waits for its time".to_owned(),
        BreakingEvent::Arriving => "an event that is being published".to_owned(),
    }
}

fn names_of(events: UncomparedEvents) -> String {
    match events {
        UncomparedEvents::Below(partition, offset) => {
            format!("events below offset {offset} of partition {partition}")
        }
        UncomparedEvents::Delayed => "some delayed events that wait for their time".to_owned(),
    }
}

fn shown(filter: &Filter) -> String {
    let key = filter.key.as_ref().map(|key| format!("key {key:?}"));
    let header = filter.header.as_ref().map(|(name, value)| format!("header {name:?} = {value:?}"));
    match (key, header) {
        (None, None) => "no filter".to_owned(),
        (Some(one), None) | (None, Some(one)) => format!("the filter {one}"),
        (Some(key), Some(header)) => format!("the filter {key} and {header}"),
    }
}
