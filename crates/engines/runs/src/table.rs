//! The table of runs that have not ended, indexed by slot.

use crate::guest::Guest;
use crate::ids::RunId;
use crate::run::EffectRun;

/// Slots are reused, the last freed one first, and never removed: the table is as long as the largest number of runs
/// that were active at once. Unlike in a tree of ids, the cost of a lookup does not depend on the number of runs.
#[derive(Debug)]
pub(crate) struct RunTable<G: Guest> {
    slots: Vec<Option<EffectRun<G>>>,
    free: Vec<u32>,
    started: u64,
}

impl<G: Guest> RunTable<G> {
    pub(crate) fn new() -> Self {
        RunTable { slots: Vec::new(), free: Vec::new(), started: 0 }
    }

    /// The caller has checked that the number of runs fits into 32 bits.
    pub(crate) fn insert(&mut self, make: impl FnOnce(RunId) -> EffectRun<G>) -> RunId {
        self.started += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        let id = RunId { serial: self.started, slot };
        self.slots[slot as usize] = Some(make(id));
        id
    }

    pub(crate) fn get(&self, id: RunId) -> Option<&EffectRun<G>> {
        self.slots.get(id.slot as usize)?.as_ref().filter(|run| run.id == id)
    }

    pub(crate) fn get_mut(&mut self, id: RunId) -> Option<&mut EffectRun<G>> {
        self.slots.get_mut(id.slot as usize)?.as_mut().filter(|run| run.id == id)
    }

    pub(crate) fn remove(&mut self, id: RunId) -> Option<EffectRun<G>> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        slot.as_ref().filter(|run| run.id == id)?;
        let run = slot.take();
        self.free.push(id.slot);
        run
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &EffectRun<G>> {
        self.slots.iter().flatten()
    }
}
