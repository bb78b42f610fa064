//! Everything a worker is told: a closed list.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{
    Check, Identity, Intent, Namespace, Offset, Op, Outcome, Space, Stream, Timestamp, TopicKey, keys,
};

use crate::error::RunError;
use crate::spec::OutEvent;

/// Names an effect that will be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// One try of one handler at one event. Never used twice by one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

#[derive(Clone, Debug)]
pub enum Input {
    /// Somebody committed: look again. `None` = nobody knows which topics.
    News { topics: Option<Vec<TopicKey>> },
    /// Somebody delayed events: when the first one is due must be looked up.
    Delayed,
    /// The batch of [`crate::Effect::Commit`] is durable, or was refused by one of its checks.
    Committed { token: Token, outcome: Outcome },
    /// The store does not take batches of that size: nothing of it is written, everything else goes on.
    TooLarge { token: Token, bytes: usize, limit: usize },
    /// A commit failed and nobody knows whether it is written. This worker is over; reopen the store, make another.
    Failed { reason: String },
    /// The answer to [`crate::Effect::Look`]. `None` = it could not be read; it is asked again later.
    Seen { token: Token, seen: Option<Seen> },
    /// A handler's `commit()`; answered by [`crate::Effect::Answer`].
    Commit { run: RunId, commit: StateChanges },
    /// A handler's `commit_and_ack()`: its last commit, which ends the claim and appends what the run emitted. Answered by
    /// [`crate::Effect::Answer`]; the run goes on until [`Input::Finished`], but nothing it says afterwards is written.
    CommitAndAck { run: RunId, commit: StateChanges, emitted: Vec<OutEvent> },
    /// A handler has returned: the events it emitted, or what went wrong.
    Finished { run: RunId, result: Result<Vec<OutEvent>, RunError> },
    /// Finish what runs, give back what does not, and say [`crate::Effect::Stopped`].
    Stop,
    /// The deadline has come.
    Tick,
}

/// What one `commit()` wants to become durable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateChanges {
    /// At most one per identity.
    pub intents: Vec<Intent>,
    pub meta: BTreeMap<String, String>,
    /// What must hold for the intents to make sense: rows of schemas. Refusals name their index in this list.
    pub checks: Vec<Check>,
    /// Rows of schemas that are written along.
    pub ops: Vec<Op>,
    pub event: Option<OutEvent>,
    /// What the intents were made from. If one of these identities is another by now, nothing is written and the answer
    /// is [`crate::CommitError::Conflict`].
    pub expected: Vec<Expected>,
}

/// An identity as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub identity: Identity,
    /// Its row in [`Space::Heads`], byte for byte; `None` = there was none. Every commit that changes the identity writes
    /// another row, because the row holds the number of its commit.
    pub head: Option<Bytes>,
}

impl Expected {
    pub(crate) fn check(&self, namespace: &Namespace) -> Check {
        let (space, key) = (Space::Heads, keys::identity(namespace, &self.identity));
        match self.head.clone() {
            Some(value) => Check::Equals { space, key, value },
            None => Check::Absent { space, key },
        }
    }
}

/// Something to look up in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// Rows of a small table from `from` (included) to `to` (excluded).
    Rows { space: millrace_model::Space, from: String, to: String, rows_max: usize },
    /// Every stream of these topics, `None` = of all topics of the namespace.
    Streams { namespace: millrace_model::Namespace, topic: Option<TopicKey> },
    /// Where the stream should start under the rule (see `Store::retention_start`).
    RetentionStart { stream: Stream, older_than: Option<millrace_model::Timestamp>, bytes_max: Option<u64> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Rows(Vec<(String, Bytes)>),
    Streams(Vec<StreamSpan>),
    Start(Offset),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpan {
    pub stream: Stream,
    pub start: Offset,
    pub next: Offset,
    /// The time of the newest event that was ever appended; nothing while `next` is the first offset.
    pub last_ts: Timestamp,
}
