//! Inputs: everything that can happen to the bus.

use std::sync::Arc;

use millrace_model::{
    AckMode, DeliverAt, Event, Filter, Group, Namespace, NewEvent, Offset, Outcome, Partition, Requester,
    Timestamp, TopicKey, TopicName, TopicPatch,
};

use crate::interface::reply::ReplyTo;
use crate::publishing::foreign_appends::{ForeignDelays, LogBounds, StoredTopic};
use crate::topics::schema::{RetainedOutcome, SchemaVerdict};

/// A connection, numbered by the shell; a number is never used twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// Ties an effect that takes time to the input that reports its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

#[derive(Clone, Debug)]
pub enum Input {
    /// A connection exists. Nothing is delivered to connections that were not opened.
    Open {
        conn: ConnId,
        namespace: Namespace,
    },
    /// The connection is gone. The events that it held are free at once; in each partition the lowest of them counts as
    /// an attempt.
    Close {
        conn: ConnId,
    },
    /// The server itself closes the connection, for the sake of others or because its token has expired: none of the
    /// events that it holds has failed.
    Evict {
        conn: ConnId,
    },
    /// The connection's outbound buffer is full: send it nothing but answers until `Drained`.
    Congested {
        conn: ConnId,
    },
    Drained {
        conn: ConnId,
    },
    /// A request, to be answered at `to`.
    Request {
        to: ReplyTo,
        by: Requester,
        request: Request,
        /// The verdict of an earlier check of the events against their topic's schema, so that this engine need not
        /// check them. Used if that schema is still in force.
        checked: Option<Box<SchemaVerdict>>,
    },
    /// The answer to [`crate::Effect::Commit`].
    Committed {
        token: Token,
        outcome: Outcome,
    },
    /// A commit was not even tried: its batch is larger than a store must take. Nothing of it was written.
    TooLarge {
        token: Token,
        bytes: usize,
    },
    /// The store is poisoned. Nothing that was not confirmed by now ever will be.
    StorageFailed {
        reason: String,
    },
    /// The store's disk has too little room (`Some`: why), or enough again (`None`). Meanwhile requests that add to the
    /// store are refused; acks, deliveries and deletions go on.
    NoSpace {
        reason: Option<String>,
    },
    /// Events are to stay here for now, or may go out again. Leases, acks and commits go on. For a leader of a shared
    /// store that may have been replaced: whatever it delivers now, another server may be delivering, too.
    PauseDelivery {
        is_paused: bool,
    },
    /// The answer to [`crate::Effect::Read`].
    Page {
        token: Token,
        page: ReadOutcome,
    },
    /// The answer to [`crate::Effect::Seek`] and [`crate::Effect::FindStart`]: one offset per partition asked about.
    Found {
        token: Token,
        offsets: Option<Vec<Offset>>,
    },
    /// The answer to [`crate::Effect::ScanDue`]: rows in key order.
    DueRows {
        token: Token,
        rows: Option<Vec<(String, bytes::Bytes)>>,
    },
    /// The current bounds of streams, whoever appended to them or trimmed them. Changes by this engine are reported as
    /// well, after their [`Input::Committed`].
    ForeignCommits {
        bounds: Vec<LogBounds>,
        /// `Some` if somebody has delayed events since the last report.
        delayed: Option<ForeignDelays>,
    },
    /// The answer to [`crate::Effect::ReadTopic`]: `Some(None)` if there is no such topic, `None` if it could not be
    /// read.
    TopicRead {
        token: Token,
        found: Option<Option<StoredTopic>>,
    },
    /// The answer to [`crate::Effect::CheckRetained`]; `None` if the events could not be read.
    RetainedChecked {
        token: Token,
        outcome: Option<RetainedOutcome>,
    },
    /// Take no more requests, give back all leases without counting attempts, then emit [`crate::Effect::Stopped`].
    Stop,
}

/// The result of a read; `None` means the store could not be read just now.
pub type ReadOutcome = Option<ReadPage>;

/// A page of events: every offset from the requested one up to `through` is in `events` or is gone for good.
#[derive(Clone, Debug, Default)]
pub struct ReadPage {
    pub events: Vec<Arc<Event>>,
    pub through: Offset,
}

#[derive(Clone, Debug)]
pub enum Request {
    Publish(Publish),
    PublishBatch(PublishBatch),
    /// Events of the server itself, for its own topics. No WebSocket frame and no HTTP body leads here.
    Record(PublishBatch),
    Subscribe(Subscribe),
    Unsubscribe {
        topic: TopicKey,
        group: Group,
    },
    Ack(Ack),
    Nack(Nack),
    /// Takes back a delivery that reached nobody: it is no attempt. Answered only if it is refused. No WebSocket frame
    /// leads here, because a consumer could use it to receive an event for ever.
    GiveBack(GiveBack),
    /// Adds delivery credits to the connection; the first one switches it to credit mode.
    Flow {
        credits: u64,
    },
    /// Creates a topic with these settings; an existing topic is changed as by [`Request::PatchTopic`].
    CreateTopic {
        topic: TopicKey,
        /// Boxed to keep requests small: publishes are moved through the same queues, many times more often.
        settings: Box<TopicPatch>,
        /// A topic that exists is left as it is, and the request refused.
        only_new: bool,
    },
    PatchTopic {
        topic: TopicKey,
        patch: Box<TopicPatch>,
    },
    DeleteTopic {
        topic: TopicKey,
    },
    /// A page of topics, in the order of names.
    ListTopics {
        namespace: Namespace,
        /// Only topics after this name, whether or not there is such a topic.
        after: Option<TopicName>,
        max: usize,
        dead_letters_only: bool,
    },
    DescribeTopic {
        topic: TopicKey,
    },
    Offsets {
        topic: TopicKey,
    },
    ListGroups {
        topic: TopicKey,
    },
    /// Deletes a group without members: its positions, its filter, its counts of attempts.
    DeleteGroup {
        topic: TopicKey,
        group: Group,
    },
    /// Moves a group of which no member holds events. `partition: None` moves all partitions.
    SeekGroup {
        topic: TopicKey,
        group: Group,
        partition: Option<Partition>,
        from: From,
    },
    /// Holds the group's deliveries back until it is resumed, also over a restart. Leases and acks go on.
    PauseGroup {
        topic: TopicKey,
        group: Group,
        paused: bool,
    },
    /// Removes single letters from a topic of dead letters.
    RemoveLetters {
        topic: TopicKey,
        partition: Partition,
        offsets: Vec<Offset>,
    },
    /// The members of a group, and the events that they hold or that wait to be sent again, at most `open_max`.
    InspectGroup {
        topic: TopicKey,
        group: Group,
        open_max: usize,
    },
    /// Counts the subscriptions of every open connection, and the events that it holds.
    InspectConnections,
    /// The standing of one event with every group of its topic.
    EventStandings {
        topic: TopicKey,
        partition: Partition,
        offset: Offset,
    },
    Stats,
}

impl Request {
    /// Returns whether the request neither writes to the store nor needs a store that can be written.
    pub fn only_reads(&self) -> bool {
        matches!(
            self,
            Request::ListTopics { .. }
                | Request::DescribeTopic { .. }
                | Request::Offsets { .. }
                | Request::ListGroups { .. }
                | Request::InspectGroup { .. }
                | Request::InspectConnections
                | Request::EventStandings { .. }
                | Request::Stats
                | Request::Flow { .. }
        )
    }
}

#[derive(Clone, Debug)]
pub struct Publish {
    pub topic: TopicKey,
    pub event: NewEvent,
    /// The event is not delivered before this time, if given.
    pub deliver_at: Option<DeliverAt>,
}

/// Events that are stored together: all of them or none.
#[derive(Clone, Debug)]
pub struct PublishBatch {
    pub topic: TopicKey,
    pub events: Vec<NewEvent>,
}

#[derive(Clone, Debug)]
pub struct Subscribe {
    pub topic: TopicKey,
    pub group: Group,
    /// Where a group without a commit begins; `None` = at the tail.
    pub from: Option<From>,
    /// Seek to `from` although the group has a commit.
    pub reset: bool,
    /// At most this many unacknowledged events; `None` = the default.
    pub max_inflight: Option<u32>,
    /// `None` = the topic's or the server's setting.
    pub ack_mode: Option<AckMode>,
    /// Events of one key go to one member, one at a time. Holds for the whole group while a member asks for it.
    pub sticky: bool,
    pub filter: Filter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Latest,
    Earliest,
    Offset(Offset),
    Timestamp(Timestamp),
}

#[derive(Clone, Debug)]
pub struct Ack {
    pub topic: TopicKey,
    pub partition: Partition,
    pub group: Group,
    pub offset: Offset,
    /// The sender wants an answer once the ack is durable.
    pub confirm: bool,
}

#[derive(Clone, Debug)]
pub struct Nack {
    pub topic: TopicKey,
    pub partition: Partition,
    pub group: Group,
    pub offset: Offset,
    pub reason: Option<String>,
    pub delay_ms: Option<u64>,
    pub confirm: bool,
}

#[derive(Clone, Debug)]
pub struct GiveBack {
    pub topic: TopicKey,
    pub partition: Partition,
    pub group: Group,
    pub offset: Offset,
}
