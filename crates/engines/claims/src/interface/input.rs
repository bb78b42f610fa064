//! Everything that a worker is told: a closed list.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{
    Check, Identity, Intent, Namespace, Offset, Op, Outcome, Space, Stream, Timestamp, TopicKey, keys,
};

use crate::interface::error::RunError;
use crate::interface::spec::OutEvent;

/// Identifies an effect that will be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// An attempt of a handler at an event. Never used twice by one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

#[derive(Clone, Debug)]
pub enum Input {
    /// Somebody has committed: look for events. `None` = the topics are not known.
    News { topics: Option<Vec<TopicKey>> },
    /// Somebody has delayed events: look up when the first one is due.
    Delayed,
    /// The batch of [`crate::Effect::Commit`] is durable, or was refused by one of its checks.
    Committed { token: Token, outcome: Outcome },
    /// The store does not accept batches of this size: nothing of the batch is written, everything else goes on.
    TooLarge { token: Token, bytes: usize, limit: usize },
    /// A commit failed, and it is not known whether it was written. This worker is finished; reopen the store and
    /// create another.
    Failed { reason: String },
    /// The answer to [`crate::Effect::Read`]. `None` = reading failed; the worker asks again later.
    ReadDone { token: Token, result: Option<ReadResult> },
    /// A handler's `commit()`; answered by [`crate::Effect::Answer`].
    Commit { run: RunId, commit: StateChanges },
    /// A handler's `commit_and_ack()`: its last commit, which ends the claim and appends the emitted events. Answered
    /// by [`crate::Effect::Answer`]; the run goes on until [`Input::Finished`], but nothing it does afterwards is
    /// written.
    CommitAndAck { run: RunId, commit: StateChanges, emitted: Vec<OutEvent> },
    /// A handler has returned: the events it emitted, or how it failed.
    Finished { run: RunId, result: Result<Vec<OutEvent>, RunError> },
    /// Finish the runs, give back the queued events, then report [`crate::Effect::Stopped`].
    Stop,
    /// The deadline of [`crate::Worker::next_deadline`] has come.
    Tick,
}

/// The changes that one `commit()` makes durable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateChanges {
    /// At most one per identity.
    pub intents: Vec<Intent>,
    pub meta: BTreeMap<String, String>,
    /// Checks that must hold for the intents to make sense, on rows of schemas. A refusal names the index in this list.
    pub checks: Vec<Check>,
    /// Rows of schemas to be written with the commit.
    pub ops: Vec<Op>,
    pub event: Option<OutEvent>,
    /// The state that the intents are based on. If one of these identities has changed since, nothing is written and
    /// the answer is [`crate::CommitError::Conflict`].
    pub expected: Vec<Expected>,
}

/// An identity as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub identity: Identity,
    /// The identity's row in [`Space::Heads`], byte for byte; `None` = there was none. Every commit that changes the
    /// identity changes the row, because the row holds the number of its commit.
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

/// A read from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadQuery {
    /// Rows of a small table from `from` (included) to `to` (excluded).
    Rows { space: millrace_model::Space, from: String, to: String, rows_max: usize },
    /// Every stream of this topic, `None` = of all topics of the namespace.
    Streams { namespace: millrace_model::Namespace, topic: Option<TopicKey> },
    /// Where the stream should start under the rule (see `Store::retention_start`).
    RetentionStart { stream: Stream, older_than: Option<millrace_model::Timestamp>, bytes_max: Option<u64> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadResult {
    Rows(Vec<(String, Bytes)>),
    Streams(Vec<StreamSpan>),
    Start(Offset),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpan {
    pub stream: Stream,
    pub start: Offset,
    pub next: Offset,
    /// The time of the newest event that was ever appended; meaningless while `next` is the first offset.
    pub last_ts: Timestamp,
}
