//! The store of a simulation, in memory, and its clock.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_model::{Batch, Mono, Op, Outcome, TopicKey};
use millrace_store::{MemoryStore, Store, StoreError};
use parking_lot::{Mutex, MutexGuard};

use super::simulated_worker::SimulatedWorkerId;
use crate::shell::clock::VirtualClock;

/// A store and a clock: everything that a session needs while no handler runs.
#[derive(Default)]
pub(crate) struct SimulatedStore {
    pub(super) store: Arc<MemoryStore>,
    pub(super) clock: VirtualClock,
    /// Topics that got events since the workers were last told, and the worker that appended them: it knows already,
    /// and telling it would cost a claim that finds nothing.
    news: Mutex<BTreeSet<(TopicKey, Option<SimulatedWorkerId>)>>,
    /// Events were delayed since the workers were last told.
    delayed: AtomicBool,
    /// When something was last committed from outside of the workers. Workers see some of that (schedules, topics) only
    /// when they refresh, so the simulation must wait for that.
    touched: Mutex<Option<Mono>>,
}

impl SimulatedStore {
    /// Commits a batch of a caller that is no worker.
    pub(crate) fn commit_outside(&self, batch: Batch) -> Result<Outcome, StoreError> {
        *self.touched() = Some(self.clock.at().mono);
        self.commit(batch, None)
    }

    pub(super) fn touched(&self) -> MutexGuard<'_, Option<Mono>> {
        self.touched.lock()
    }

    pub(super) fn commit(
        &self,
        batch: Batch,
        worker: Option<SimulatedWorkerId>,
    ) -> Result<Outcome, StoreError> {
        let appends: Vec<_> = batch
            .ops
            .iter()
            .filter_map(|op| match op {
                Op::Append(append) => Some((append.stream.topic.clone(), worker)),
                _ => None,
            })
            .collect();
        let delays = batch.ops.iter().any(|op| matches!(op, Op::Delay(_)));
        let outcome = self.store.commit(&[batch])?.pop();
        let outcome = outcome.ok_or_else(|| StoreError::Poisoned("a commit without an answer".into()))?;
        if matches!(outcome, Outcome::Done(_)) {
            self.delayed.fetch_or(delays, Ordering::SeqCst);
            self.news().extend(appends);
        }
        Ok(outcome)
    }

    /// Returns true once after events were delayed.
    pub(super) fn take_delayed(&self) -> bool {
        self.delayed.swap(false, Ordering::SeqCst)
    }

    pub(super) fn news(&self) -> MutexGuard<'_, BTreeSet<(TopicKey, Option<SimulatedWorkerId>)>> {
        self.news.lock()
    }
}

impl fmt::Debug for SimulatedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedStore").field("clock", &self.clock).finish_non_exhaustive()
    }
}
