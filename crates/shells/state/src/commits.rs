//! Commits of state: when, why, and what changed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use millrace_model::{EventId, Space, StateChange, StateCommit, StateCommitRow, Timestamp, keys};
use millrace_store::KeyRange;

use super::State;
use super::error::StateError;
use super::scan;

/// The most commits that a call of `list_commits` returns.
pub const LIST_COMMITS_MAX: usize = 1000;
/// How many commit numbers the first step back covers; each further step covers twice as many.
const WINDOW: u64 = 1024;

/// Everything about a commit besides its changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitRecord {
    pub id: StateCommit,
    pub at: Timestamp,
    pub meta: BTreeMap<String, String>,
    /// How many identities the commit changed.
    pub changes: usize,
    /// Events that were appended with the commit.
    pub events: Vec<EventId>,
}

impl State {
    /// Returns the newest commits of the namespace after `since` (0 = all), the newest first; at most `limit`, and
    /// never more than [`LIST_COMMITS_MAX`].
    pub fn list_commits(&self, limit: usize, since: StateCommit) -> Result<Vec<CommitRecord>, StateError> {
        let limit = limit.min(LIST_COMMITS_MAX);
        let mut newest_first = Vec::new();
        let mut end = self.head()?.0.saturating_add(1);
        let mut window = WINDOW;
        // The table can only be read forwards, and other namespaces share the numbers: so step back in windows.
        while newest_first.len() < limit && end > since.0.saturating_add(1) {
            let start = end.saturating_sub(window).max(since.0.saturating_add(1));
            let mut found = Vec::new();
            let at = |commit| keys::state_commit(self.namespace(), StateCommit(commit));
            let range = KeyRange { from: at(start), to: Some(at(end)) };
            scan::rows(self.store(), Space::StateCommits, range, &mut |row| {
                found.extend(record(&row.key, &row.value)?);
                // Of a full window only the newest commits matter.
                if found.len() >= 2 * LIST_COMMITS_MAX {
                    found.drain(..LIST_COMMITS_MAX);
                }
                Ok(ControlFlow::Continue(()))
            })?;
            newest_first.extend(found.into_iter().rev());
            (end, window) = (start, window.saturating_mul(2));
        }
        newest_first.truncate(limit);
        Ok(newest_first)
    }

    pub fn get_commit(&self, id: StateCommit) -> Result<Option<CommitRecord>, StateError> {
        let key = keys::state_commit(self.namespace(), id);
        let row = self.row(Space::StateCommits, &key)?;
        Ok(row.map(|value| record(&key, &value)).transpose()?.flatten())
    }

    /// Returns the changes of the commit, entities first, then relations. Empty if there is no such commit.
    pub fn list_commit_changes(&self, id: StateCommit) -> Result<Vec<StateChange>, StateError> {
        let key = keys::state_commit(self.namespace(), id);
        let Some(value) = self.row(Space::StateCommits, &key)? else { return Ok(Vec::new()) };
        let mut changes = StateCommitRow::decode(&key, &value)?.changes;
        changes.sort_by_key(|change| change.identity.kind());
        Ok(changes)
    }
}

fn record(key: &str, value: &[u8]) -> Result<Option<CommitRecord>, StateError> {
    let Some(id) = key.rsplit('/').next().and_then(|digits| u64::from_str_radix(digits, 16).ok()) else {
        return Ok(None);
    };
    let StateCommitRow { at, meta, changes, events } = StateCommitRow::decode(key, value)?;
    Ok(Some(CommitRecord { id: StateCommit(id), at, meta, changes: changes.len(), events }))
}
