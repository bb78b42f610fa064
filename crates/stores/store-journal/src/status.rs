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
    /// How long ago the newest placing of this handle that succeeded began, in milliseconds: since then another server
    /// may have taken the lead.
    pub unproven_ms: u64,
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
            unproven_ms: 0,
            ended: None,
            placed_records: 0,
            placed_bytes: 0,
            engine_failures: 0,
            lost_records: 0,
            lost_events: 0,
            records_since_snapshot: 0,
        }
    }

    /// Returns why a leader may have been replaced without knowing it. A leader that can place records begins to do so at
    /// least every third of the lead timeout. After the whole timeout another server leads, if that one can reach the
    /// engine; half of it is early enough to stop delivering before.
    pub fn lead_doubt(&self, lead_timeout_ms: u64) -> Option<String> {
        if self.role != Role::Leader {
            return Some("this server has lost the lead".to_owned());
        }
        let unproven_ms = self.unproven_ms;
        if unproven_ms < lead_timeout_ms / 2 {
            return None;
        }
        let why = match &self.unreachable {
            Some(away) => away.reason.as_str(),
            None => "the engine has not answered yet",
        };
        Some(format!(
            "this server could not write to the shared store for {unproven_ms} ms, so another one may lead: {why}"
        ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_doubts_after_half_the_timeout_without_a_record() {
        let mut status = JournalStatus::at(CopyPosition::start(1));
        assert!(status.lead_doubt(5_000).is_some(), "it does not lead");
        status.role = Role::Leader;
        for (unproven_ms, is_doubted) in [(0, false), (2_499, false), (2_500, true), (60_000, true)] {
            status.unproven_ms = unproven_ms;
            assert_eq!(status.lead_doubt(5_000).is_some(), is_doubted, "{unproven_ms}");
        }
        status.unreachable = Some(Unreachable { since_ms: 0, reason: "no route".into() });
        assert!(status.lead_doubt(5_000).is_some_and(|why| why.ends_with("no route")));
    }
}
