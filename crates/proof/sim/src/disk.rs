//! The simulated disk: a memory store whose commits can vanish or fail.
//!
//! The disk keeps every commit it was given. After a power loss some commits that were not synced are gone, always a
//! suffix: the store is then rebuilt from the commits that are left.

use millrace_model::{Batch, Durability, Outcome};
use millrace_store::{MemoryStore, Store, StoreError};

use crate::dice::Dice;

/// How the server ended, which decides what its disk keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Stop,
    Kill,
    PowerLoss,
}

impl Ending {
    /// The weakest durability that survives this ending.
    pub(crate) fn survives(self) -> Durability {
        match self {
            Ending::Stop => Durability::Memory,
            Ending::Kill => Durability::Os,
            Ending::PowerLoss => Durability::Fsync,
        }
    }
}

struct Commit {
    batches: Vec<Batch>,
    level: Durability,
}

/// The durability of a commit: the strongest that any of its batches asks for.
pub(crate) fn level_of(batches: &[Batch]) -> Durability {
    batches.iter().map(|batch| batch.durability).max().unwrap_or_default()
}

pub(crate) struct Disk {
    store: MemoryStore,
    commits: Vec<Commit>,
}

impl Disk {
    pub(crate) fn new() -> Disk {
        Disk { store: MemoryStore::new(), commits: Vec::new() }
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &self.store
    }

    pub(crate) fn commits(&self) -> usize {
        self.commits.len()
    }

    pub(crate) fn commit(&mut self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        let outcomes = self.store.commit(batches)?;
        self.commits.push(Commit { batches: batches.to_vec(), level: level_of(batches) });
        Ok(outcomes)
    }

    /// Ends the server. Returns how many commits are left: all that survive this ending for certain, and as many of the
    /// others as the dice say.
    pub(crate) fn end(&mut self, ending: Ending, dice: &mut Dice) -> Result<usize, StoreError> {
        let safe =
            self.commits.iter().rposition(|commit| commit.level >= ending.survives()).map_or(0, |at| at + 1);
        let kept = dice.between(safe as u64, self.commits.len() as u64) as usize;
        if kept < self.commits.len() {
            self.commits.truncate(kept);
            self.store = MemoryStore::new();
            for commit in &self.commits {
                self.store.commit(&commit.batches)?;
            }
        }
        Ok(kept)
    }
}
