//! Everything the bus asks the world to do: a closed list.

use std::sync::Arc;

use millrace_model::{Batch, DueBy, Event, Group, Offset, Stream, Timestamp, TopicKey};

use crate::input::{ConnId, Token};
use crate::note::Note;
use crate::reply::{BusError, Reply, ReplyTo};
use crate::schema::{RetainedCheck, TopicSchema};

#[derive(Clone, Debug)]
pub enum Effect {
    /// Make it durable, in the order the commits were asked for, then say [`crate::Input::Committed`].
    Commit { token: Token, batch: Batch },
    /// Read from the store, then say [`crate::Input::Page`].
    Read { token: Token, stream: Stream, from: Offset, events_max: usize, bytes_max: usize },
    /// Find the first event not older than `ts` in each stream, then say [`crate::Input::Found`].
    Seek { token: Token, streams: Vec<Stream>, ts: Timestamp },
    /// Find where the stream should start under the rule, then say [`crate::Input::Found`].
    FindStart { token: Token, stream: Stream, older_than: Option<Timestamp>, bytes_max: Option<u64> },
    /// The first rows of this kind in the table of delayed events, then say [`crate::Input::DueRows`].
    ScanDue { token: Token, waits: DueBy, rows_max: usize },
    /// A topic as it stands in the store by now, then say [`crate::Input::TopicRead`].
    ReadTopic { token: Token, topic: TopicKey },
    /// Compare retained events with a new schema, then say [`crate::Input::RetainedChecked`].
    CheckRetained { token: Token, check: RetainedCheck },
    /// The schema of a topic from now on. Whoever brings requests may check them against it beforehand and hand in what
    /// came of it: see [`crate::Input::Request`].
    SchemaInForce { topic: TopicKey, schema: Option<Arc<TopicSchema>> },
    /// An answer. It leaves only now, after its commit was confirmed.
    Reply { to: ReplyTo, reply: Reply },
    /// An event for a member of a group.
    Deliver { conn: ConnId, group: Group, event: Arc<Event>, attempts: u32 },
    /// Something a connection must know although it did not ask.
    Notice { conn: ConnId, error: BusError, group: Option<Group> },
    /// Something worth writing down happened.
    Note(Note),
    /// Everything is given back and durable: the process may end.
    Stopped,
}
