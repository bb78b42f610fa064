//! The two threads that drive the engine and the writer. Both can do both jobs, each job has one thread at a time.
//!
//! A thread that has decided something commits it itself when nobody is committing, and a thread that has committed
//! handles the outcome itself when nobody is deciding. So a lone publish passes through one thread from request to
//! answer: a hand-over to a sleeping thread costs more than the engine needs for it. While one thread waits for the
//! disk, the other goes on deciding, so a slow or stuck disk holds up only what has to be durable.
//!
//! ```text
//! request -> [decide -> commit, sync -> decide] -> answer        one thread, the other sleeps
//!                       request -> [decide]                      the other one, during the sync
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::handle::Shared;
use crate::inbox::{Job, Turn};
use crate::owner::Owner;
use crate::writer::Writer;

/// Enough: one waits for the disk, one decides.
pub(crate) const THREADS: usize = 2;

pub(crate) struct Crew {
    pub(crate) shared: Arc<Shared>,
    /// Gone while somebody decides, and for good once the runtime has ended or the engine fell over a bug.
    pub(crate) owner: Mutex<Option<Box<Owner>>>,
    pub(crate) writer: Writer,
}

impl Crew {
    pub(crate) fn run(&self) {
        let inbox = &self.shared.inbox;
        loop {
            match inbox.next(&self.shared.backlog, &self.shared.settings) {
                Job::Decide(turn) => self.decide(turn),
                Job::Commit => {
                    // A store that failed stays with whoever met it: nobody writes any more.
                    if self.writer.commit_queued() {
                        inbox.wrote();
                    }
                }
                Job::Chores => {
                    if let Some(until) = self.writer.chores() {
                        inbox.chores_done(until);
                    }
                }
                Job::Retire => drop(self.take_owner()),
                Job::End => return,
            }
        }
    }

    /// If the engine falls over a bug, the owner is dropped on the way out and tells everybody.
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
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
