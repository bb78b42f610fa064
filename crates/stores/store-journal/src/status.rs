//! The state of a shared store as a server tells it: for readiness, metrics, `doctor` and log lines.

use millrace_store::CopyPosition;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalStatus {
    pub role: Role,
    /// Set while the engine cannot be reached.
    pub unreachable: Option<Unreachable>,
    pub position: CopyPosition,
    /// The highest number of a record that this handle has seen in the journal.
    pub head_seen: u64,
    /// Whether anybody leads.
    pub is_led: bool,
    /// The address of the leader; `None` when nobody leads, and for a leader that told none.
    pub leader_url: Option<String>,
    pub term: u64,
    /// How long ago the newest record was placed or folded, in milliseconds.
    pub silent_ms: u64,
    /// Why this handle writes no more, if so.
    pub ended: Option<String>,
    pub placed_records: u64,
    pub placed_bytes: u64,
    /// How many requests to the engine failed or were lost.
    pub engine_failures: u64,
    /// How many records an engine has lost that were placed before, as far as this handle noticed.
    pub lost_records: u64,
    /// How many events were lost with such records, found when the copy was made anew.
    pub lost_events: u64,
    /// Records between the last snapshot and the position.
    pub records_since_snapshot: u64,
}

impl JournalStatus {
    /// The status of a handle that has just been opened.
    pub(crate) fn at(position: CopyPosition) -> JournalStatus {
        JournalStatus {
            role: Role::Follower,
            unreachable: None,
            position,
            head_seen: position.n,
            is_led: false,
            leader_url: None,
            term: 0,
            silent_ms: 0,
            ended: None,
            placed_records: 0,
            placed_bytes: 0,
            engine_failures: 0,
            lost_records: 0,
            lost_events: 0,
            records_since_snapshot: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Leader,
    Follower,
    /// Commits without a lead ([`crate::Leadership::Free`]).
    Peer,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Leader => "leader",
            Role::Follower => "follower",
            Role::Peer => "peer",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    pub since_ms: u64,
    pub reason: String,
}
