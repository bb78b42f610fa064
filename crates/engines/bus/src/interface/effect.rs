//! Effects: everything that the bus asks its shell to do.

use std::sync::Arc;

use millrace_model::{Batch, DueBy, Event, Group, Offset, Stream, Timestamp, TopicKey};

use crate::interface::input::{ConnId, Token};
use crate::interface::note::Note;
use crate::interface::reply::{BusError, Reply, ReplyTo};
use crate::topics::schema::{RetainedCheck, TopicSchema};

#[derive(Clone, Debug)]
pub enum Effect {
    /// Make the batch durable, in the order the commits were requested, then report [`crate::Input::Committed`].
    Commit { token: Token, batch: Batch },
    /// Read events from the store, then report [`crate::Input::Page`].
    Read { token: Token, stream: Stream, from: Offset, events_max: usize, bytes_max: usize },
    /// Find the first event not older than `ts` in each stream, then report [`crate::Input::Found`].
    Seek { token: Token, streams: Vec<Stream>, ts: Timestamp },
    /// Find where the stream should start under this rule, then report [`crate::Input::Found`].
    FindStart { token: Token, stream: Stream, older_than: Option<Timestamp>, bytes_max: Option<u64> },
    /// Read the first rows of this kind in the table of delayed events, then report [`crate::Input::DueRows`].
    ScanDue { token: Token, waits: DueBy, rows_max: usize },
    /// Read a topic as it now stands in the store, then report [`crate::Input::TopicRead`].
    ReadTopic { token: Token, topic: TopicKey },
    /// Compare retained events with a new schema, then report [`crate::Input::RetainedChecked`].
    CheckRetained { token: Token, check: RetainedCheck },
    /// The schema of a topic from now on. The shell may check requests against it beforehand and pass the verdict
    /// along: see [`crate::Input::Request`].
    SchemaInForce { topic: TopicKey, schema: Option<Arc<TopicSchema>> },
    /// An answer to a request, emitted only after the commit that it depends on was confirmed.
    Reply { to: ReplyTo, reply: Reply },
    /// An event for a member of a group.
    Deliver { conn: ConnId, group: Group, event: Arc<Event>, attempts: u32 },
    /// An error that a connection must know of although it did not ask.
    Notice { conn: ConnId, error: BusError, group: Option<Group> },
    /// Something worth logging happened.
    Note(Note),
    /// All leases are given back, everything is durable: the process may end.
    Stopped,
}
