//! All changes of the entities or relations of a type, in the order of commits, page by page.

use std::collections::VecDeque;
use std::marker::PhantomData;

use millrace_model::{
    Identity, Operation, Space, StateChange, StateCommit, StateCommitRow, Timestamp, VersionRow, keys,
};
use millrace_store::KeyRange;

use super::State;
use super::error::StateError;
use super::history::Version;
use super::scan;
use crate::typed::Stateful;

/// Records of commits per read of the store. Each lists up to `max_batch_size` changes.
const COMMITS_PER_READ: usize = 32;

/// The state of an identity after a commit.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeVersion {
    pub identity: Identity,
    pub operation: Operation,
    /// The time of the commit.
    pub at: Timestamp,
    pub version: Version,
}

/// An iterator over pages of a type's history, the oldest first. Ends where the history ends at that moment; to
/// continue later, begin again after the last commit seen.
#[derive(Debug)]
pub struct TypeHistory<T> {
    state: State,
    rows: usize,
    /// The last commit that was read.
    read: StateCommit,
    /// Changes that were read and not returned yet.
    waiting: VecDeque<(StateCommit, Timestamp, StateChange)>,
    done: bool,
    owner: PhantomData<fn() -> T>,
}

impl State {
    /// Returns the history of a whole type after commit `since` (0 = from the first), in pages of at most `rows`
    /// versions. Reads the records of all commits of the namespace since then.
    pub fn history_of<T: Stateful>(&self, since: StateCommit, rows: usize) -> TypeHistory<T> {
        TypeHistory {
            state: self.clone(),
            rows: rows.max(1),
            read: since,
            waiting: VecDeque::new(),
            done: false,
            owner: PhantomData,
        }
    }
}

impl<T: Stateful> TypeHistory<T> {
    fn page(&mut self) -> Result<Vec<TypeVersion>, StateError> {
        let mut page = Vec::new();
        while page.len() < self.rows {
            match self.waiting.pop_front() {
                Some((commit, at, change)) => page.extend(self.version(commit, at, change)?),
                None if !self.read_commits()? => break,
                None => {}
            }
        }
        Ok(page)
    }

    /// Reads further commits. Returns false at the end.
    fn read_commits(&mut self) -> Result<bool, StateError> {
        let namespace = self.state.namespace();
        let (first, last) = (StateCommit(self.read.0.saturating_add(1)), StateCommit(u64::MAX));
        let range = KeyRange {
            from: keys::state_commit(namespace, first),
            to: Some(keys::state_commit(namespace, last)),
        };
        let rows = self.state.store().scan(Space::StateCommits, &range, COMMITS_PER_READ)?;
        for row in &rows {
            let digits = row.key.rsplit('/').next().and_then(|digits| u64::from_str_radix(digits, 16).ok());
            let Some(commit) = digits.map(StateCommit) else { continue };
            let StateCommitRow { at, changes, .. } = StateCommitRow::decode(&row.key, &row.value)?;
            self.read = commit;
            let of_type = |change: &StateChange| {
                change.identity.kind() == T::KIND && change.identity.type_name() == T::TYPE
            };
            self.waiting.extend(changes.into_iter().filter(of_type).map(|change| (commit, at, change)));
        }
        Ok(!rows.is_empty())
    }

    fn version(
        &self,
        commit: StateCommit,
        at: Timestamp,
        change: StateChange,
    ) -> Result<Option<TypeVersion>, StateError> {
        let StateChange { identity, operation } = change;
        let key = keys::version(&keys::identity(self.state.namespace(), &identity), commit);
        // A version is written together with the record of its commit; if it is missing, there is nothing to return.
        let Some(row) = self.state.row(Space::History, &key)? else { return Ok(None) };
        let VersionRow { fields, schema } = VersionRow::decode(&key, &row)?;
        let fields = fields.map(|fields| scan::parse(&key, &fields)).transpose()?;
        let version = Version { commit, schema, fields };
        Ok(Some(TypeVersion { identity, operation, at, version }))
    }
}

impl<T: Stateful> Iterator for TypeHistory<T> {
    type Item = Result<Vec<TypeVersion>, StateError>;

    /// Returns the next page. The iterator ends with the first error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let page = self.page();
        self.done = page.as_ref().map_or(true, |page| page.len() < self.rows);
        match page {
            Ok(page) if page.is_empty() => None,
            page => Some(page),
        }
    }
}
