//! The port to a shared store as the edges see it: this server's copy, who leads, and how far the copy is.

use std::sync::Arc;
use std::time::Duration;

use millrace_store::Store;

/// A store that several servers share: the leader alone writes, and every server has a copy of its own. The methods
/// wait for nothing: they are called for every request.
pub trait FollowedStore: Send + Sync + 'static {
    /// Returns this server's copy, for reading only; `None` while there is none that could be read.
    fn store(&self) -> Option<Arc<dyn Store>>;

    /// Returns the http or https URL that the leading server advertises; `None` while no server leads.
    fn leader(&self) -> Option<String>;

    fn status(&self) -> FollowStatus;
}

/// How far a copy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowStatus {
    pub phase: FollowPhase,
    /// Whether the engine of the shared store (database, bucket) can be reached.
    pub reachable: Result<(), Unreachable>,
    /// The number of the last record that the copy holds.
    pub position: u64,
    /// The number of the newest record that this server knows of.
    pub head_seen: u64,
    /// How long ago the last new record was seen; `None` before the first one.
    pub silent_for: Option<Duration>,
    /// How many events the engine has lost that this server's copy had, since the server was started.
    pub lost_events: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowPhase {
    /// The copy is being opened or rebuilt, or the engine is waited for; the text says which.
    Opening(String),
    /// The copy follows the leader's records. Also the phase of the leader itself.
    Following,
    /// This server is about to lead.
    TakingOver,
}

impl FollowPhase {
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            FollowPhase::Opening(_) => "opening",
            FollowPhase::Following => "following",
            FollowPhase::TakingOver => "taking_over",
        }
    }
}

/// Why the engine cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// How long it has been away by now.
    pub away_for: Duration,
    pub reason: String,
}
