//! Handlers: what each takes, how much it still owes, and what it gave up on.

use std::collections::BTreeMap;

use millrace_model::{ClaimRow, ClaimState, Namespace, Timestamp};

use super::standing::Standing;
use super::{Admin, AdminError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerView {
    pub handler_id: String,
    /// The event type it takes.
    pub event_type: String,
    pub registered_at: Timestamp,
    /// Events it has not finished, those of the other counts included.
    pub pending: u64,
    /// Of these: somebody works on them, or their lease has not run out yet.
    pub claimed: u64,
    /// Of these: at least one attempt failed.
    pub retrying: u64,
    pub dead_letters: u64,
    /// Somebody paused it from outside, in all sessions: it claims nothing. A pause in a program's own settings is not
    /// known here.
    pub paused: bool,
}

impl Admin {
    /// Returns every handler the namespace knows, by id.
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
