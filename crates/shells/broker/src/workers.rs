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

use std::sync::{Arc, Weak};

use millrace_shell::Wrote;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::connection::Command;
use crate::handle::{BrokerShared, Ended};
use crate::inbox::{Inbox, Turn, WorkerJob};
use crate::owner::Owner;
use crate::writer::CommitWriter;

/// Two are enough: one waits for the disk, one decides.
pub(crate) const THREADS: usize = 2;
/// Turns that an edge runs in a row, for what a commit brings and for requests that came meanwhile. Then its own
/// connection must get on.
const INLINE_TURNS_MAX: usize = 4;

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
    pub(crate) fn run(&self) {
        let inbox = &self.shared.inbox;
        loop {
            match inbox.next(&self.shared.backlog, &self.shared.settings) {
                WorkerJob::Decide(turn) => self.decide(turn),
                WorkerJob::Commit => {
                    match self.writer.commit_queued() {
                        Wrote::Done(_) => inbox.wrote(),
                        Wrote::Again(at) => inbox.wrote_nothing(at),
                        // Stays marked as writing, because the store has failed: no thread writes any more.
                        Wrote::Never => {}
                    }
                }
                WorkerJob::Maintenance => {
                    if let Some(until) = self.writer.maintenance() {
                        inbox.maintenance_done(until);
                    }
                }
                WorkerJob::Retire => drop(self.take_owner()),
                WorkerJob::End => return,
            }
        }
    }

    /// Runs the turn on the task of an edge, and the commit of a lone publisher.
    ///
    /// That task waits for the disk meanwhile, and so does its connection. tokio moves the worker's other tasks to
    /// another thread (`block_in_place`), so no other connection waits.
    fn run_inline(&self, turn: Turn, may_commit: bool) {
        let BrokerShared { inbox, backlog, settings, .. } = &*self.shared;
        self.decide(turn);
        for _ in 1..INLINE_TURNS_MAX {
            match inbox.next_short(backlog, settings) {
                Some(turn) => self.decide(turn),
                None => break,
            }
        }
        if !(may_commit && can_block()) {
            return inbox.wake_for_the_rest(backlog, settings);
        }
        if !inbox.begin_inline_commit(backlog, settings) {
            return;
        }
        match block_in_place(|| self.writer.commit_queued()) {
            Wrote::Done(_) => {
                if let Some(turn) = inbox.inline_commit_done(backlog, settings) {
                    self.decide(turn);
                }
            }
            Wrote::Again(at) => inbox.wrote_nothing(at),
            Wrote::Never => return,
        }
        inbox.wake_for_the_rest(backlog, settings);
    }

    /// If the engine panics, the owner is dropped during unwinding, which tells everybody.
    fn decide(&self, mut turn: Turn) {
        let Some(mut owner) = self.take_owner() else { return };
        let wait = owner.turn(&mut turn);
        *self.slot() = Some(owner);
        self.shared.inbox.decided(turn, wait);
    }

    fn take_owner(&self) -> Option<Box<Owner>> {
        self.slot().take()
    }

    fn slot(&self) -> MutexGuard<'_, Option<Box<Owner>>> {
        self.owner.lock()
    }
}

/// Whether tokio can move the other tasks of this worker to another thread.
fn can_block() -> bool {
    Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Hands requests over, and runs their turn inline where that is quicker than waking a thread.
pub(crate) fn hand_over(
    shared: &BrokerShared,
    commands: impl Iterator<Item = (Command, u32)>,
    may_commit: bool,
) -> Result<(), Ended> {
    let BrokerShared { inbox, backlog, settings, .. } = shared;
    let Some(turn) = inbox.push_or_start_turn(commands, backlog, settings)? else { return Ok(()) };
    let inline = InlineGuard { inbox, workers: shared.workers.get().and_then(Weak::upgrade) };
    if let Some(workers) = &inline.workers {
        workers.run_inline(turn, may_commit);
    }
    Ok(())
}

/// Drops its reference to the workers before it reports that it has finished: when the threads have ended, nothing else
/// can use the store.
struct InlineGuard<'a> {
    inbox: &'a Inbox,
    workers: Option<Arc<Workers>>,
}

impl Drop for InlineGuard<'_> {
    fn drop(&mut self) {
        self.workers = None;
        self.inbox.inline_finished();
    }
}
