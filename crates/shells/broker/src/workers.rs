//! The two threads (the workers) that drive the engine and the writer. Each thread can do both jobs; each job is done by
//! one thread at a time.
//!
//! A thread that has decided something also commits it when no other thread is committing, and a thread that has
//! committed also handles the outcome when no other thread is deciding. So a lone publish passes through one thread
//! from request to answer: waking a sleeping thread costs more than the engine needs for it. While one thread waits for
//! the disk, the other goes on deciding, so a slow or stuck disk delays only what has to be durable.
//!
//! ```text
//! request -> [decide -> commit, sync -> decide] -> answer        one thread, the other sleeps
//!                       request -> [decide]                      the other one, during the sync
//! ```
//!
//! The task of an edge that brings a request is awake as well. If no thread is running the engine, that task runs a
//! short turn inline, and if both threads sleep it also commits the result. The workers do everything else.
//!
//! `schedule.rs` decides who does what, `jobs.rs` has the order of the calls; this file has the jobs themselves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_bus::Input;
use millrace_shell::Wrote;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::backlog::BoundedBacklog;
use crate::command::{BrokerInbox, BrokerTurn, Command};
use crate::jobs::Jobs;
use crate::owner::Owner;
use crate::shared::BrokerShared;
use crate::writer::CommitWriter;

/// Two are enough: one waits for the disk, one decides.
pub(crate) const THREADS: usize = 2;

pub(crate) struct Workers {
    pub(crate) shared: Arc<BrokerShared>,
    /// `None` while a thread decides, and for good once the broker has ended or the engine has panicked.
    pub(crate) owner: Mutex<Option<Box<Owner>>>,
    pub(crate) writer: CommitWriter,
}

impl Drop for Workers {
    /// The last thread has ended. Batches that it left behind are dropped, which tells the row writers among their
    /// senders.
    fn drop(&mut self) {
        drop(self.shared.backlog.close());
    }
}

impl Workers {
    fn take_owner(&self) -> Option<Box<Owner>> {
        self.slot().take()
    }

    fn slot(&self) -> MutexGuard<'_, Option<Box<Owner>>> {
        self.owner.lock()
    }
}

impl Jobs for Workers {
    type Request = Command;
    type Completion = Input;
    type Backlog = BoundedBacklog;

    fn inbox(&self) -> &BrokerInbox {
        &self.shared.inbox
    }

    /// If the engine panics, the owner is dropped during unwinding, which tells everybody.
    fn turn(&self, turn: &mut BrokerTurn) -> Option<Duration> {
        let mut owner = self.take_owner()?;
        let wait = owner.turn(turn);
        *self.slot() = Some(owner);
        Some(wait)
    }

    fn commit(&self) -> Wrote {
        self.writer.commit_queued()
    }

    fn maintenance(&self) -> Option<Instant> {
        self.writer.maintenance()
    }

    fn retire(&self) {
        drop(self.take_owner());
    }

    /// Whether tokio can move the other tasks of this worker to another thread.
    fn can_commit_inline(&self) -> bool {
        Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
    }

    /// tokio moves the worker's other tasks to another thread (`block_in_place`), so no other connection waits.
    fn commit_inline(&self) -> Wrote {
        block_in_place(|| self.writer.commit_queued())
    }
}
