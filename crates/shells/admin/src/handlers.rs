//! Handlers: which events each takes, how many it has not finished, and how many it gave up on.

use std::collections::BTreeMap;

use millrace_model::{ClaimRow, ClaimState, Namespace, Timestamp};

use super::standing::Standing;
use super::{Admin, AdminError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerView {
    pub handler_id: String,
    /// The event type that the handler takes.
    pub event_type: String,
    pub registered_at: Timestamp,
    /// Events that the handler has not finished, including those of the two counts below.
    pub pending: u64,
    /// Pending events with a lease that has not expired.
    pub claimed: u64,
    /// Pending events with at least one failed attempt.
    pub retrying: u64,
    pub dead_letters: u64,
    /// The handler was paused from outside, in all sessions, and claims nothing. A pause in a program's own settings is
    /// not visible here.
    pub paused: bool,
}

impl Admin {
    /// Returns every handler of the namespace, by id.
    pub fn handlers(&self, namespace: &Namespace, now: Timestamp) -> Result<Vec<HandlerView>, AdminError> {
        let mut letters: BTreeMap<String, u64> = BTreeMap::new();
        for of in self.letters_by_handler(namespace)? {
            *letters.entry(of.handler_id).or_default() += of.count;
        }
        let streams = self.store.streams()?;
        let view = |standing: Standing| {
            Ok(HandlerView {
                handler_id: standing.id.to_string(),
                event_type: standing.topic.topic().to_owned(),
                registered_at: standing.registered,
                pending: self.owed(&standing, &streams)?,
                claimed: standing.open.values().filter(|row| is_leased(row, now)).count() as u64,
                retrying: standing.open.values().filter(|row| row.attempts > 0).count() as u64,
                dead_letters: letters.remove(standing.id.as_str()).unwrap_or(0),
                paused: standing.paused,
            })
        };
        self.standings(namespace)?.into_iter().map(view).collect()
    }
}

fn is_leased(row: &ClaimRow, now: Timestamp) -> bool {
    row.state == ClaimState::Leased && now < row.due
}
