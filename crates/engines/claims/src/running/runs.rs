//! The runs that go on: those whose handler was called, and those that wait for their mark.

use std::collections::BTreeMap;

use millrace_model::{Broken, never};

use crate::interface::input::RunId;
use crate::running::run::ActiveRun;

#[derive(Debug, Default)]
pub(crate) struct Runs {
    active: BTreeMap<RunId, ActiveRun>,
    last_id: u64,
}

impl Runs {
    pub(crate) fn insert(&mut self, run: ActiveRun) -> RunId {
        self.last_id += 1;
        let id = RunId(self.last_id);
        self.active.insert(id, run);
        id
    }

    /// Returns the run, if it has not ended.
    pub(crate) fn get(&self, run: RunId) -> Option<&ActiveRun> {
        self.active.get(&run)
    }

    pub(crate) fn get_mut(&mut self, run: RunId) -> Option<&mut ActiveRun> {
        self.active.get_mut(&run)
    }

    /// Returns a run that cannot have ended: it was just found in the table, or its row is being changed.
    pub(crate) fn must_get(&self, run: RunId, broken: &Broken) -> Option<&ActiveRun> {
        let found = self.active.get(&run);
        if found.is_none() {
            never!(broken, "{run:?} has ended, although its row was being changed");
        }
        found
    }

    /// Like [`Runs::must_get`].
    pub(crate) fn must_get_mut(&mut self, run: RunId, broken: &Broken) -> Option<&mut ActiveRun> {
        let found = self.active.get_mut(&run);
        if found.is_none() {
            never!(broken, "{run:?} has ended, although its row was being changed");
        }
        found
    }

    /// Removes a run that cannot have ended. The caller tells the run's handler.
    pub(crate) fn must_remove(&mut self, run: RunId, broken: &Broken) -> Option<ActiveRun> {
        let found = self.active.remove(&run);
        if found.is_none() {
            never!(broken, "{run:?} ends twice");
        }
        found
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RunId, &ActiveRun)> {
        self.active.iter().map(|(id, run)| (*id, run))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &ActiveRun> {
        self.active.values()
    }

    pub(crate) fn any(&self, matches: impl Fn(&ActiveRun) -> bool) -> bool {
        self.active.values().any(matches)
    }

    pub(crate) fn all(&self, matches: impl Fn(&ActiveRun) -> bool) -> bool {
        self.active.values().all(matches)
    }

    /// Returns the ids of the runs that match.
    pub(crate) fn ids(&self, matches: impl Fn(&ActiveRun) -> bool) -> Vec<RunId> {
        self.iter().filter(|(_, run)| matches(run)).map(|(id, _)| id).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.active.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }
}
