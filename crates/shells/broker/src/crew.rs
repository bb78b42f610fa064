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
//!
//! An edge that brings a request is awake as well, so it helps: a short turn that nobody else is at it does itself, and
//! while the crew sleeps it also commits what came of it. Everything else is the crew's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::handle::{Ended, Shared};
use crate::inbox::{Inbox, Job, Turn};
use crate::link::Asked;
use crate::owner::Owner;
use crate::writer::{Writer, Wrote};

/// Enough: one waits for the disk, one decides.
pub(crate) const THREADS: usize = 2;
/// Turns an edge does one after the other: what a commit brings and others ask for meanwhile. Then its own connection
/// must get on.
const HELP_TURNS_MAX: usize = 4;

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
                    match self.writer.commit_queued() {
                        Wrote::Done => inbox.wrote(),
                        Wrote::Again(at) => inbox.wrote_nothing(at),
                        // A store that failed stays with whoever met it: nobody writes any more.
                        Wrote::Never => {}
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

    /// For an edge: does the turn, and the commit of a lone publisher.
    ///
    /// The task of the edge waits for the disk meanwhile, and with it its connection; its worker is lent to another
    /// thread, so nobody else does.
    fn help(&self, turn: Turn, may_commit: bool) {
        let Shared { inbox, backlog, settings, .. } = &*self.shared;
        self.decide(turn);
        for _ in 1..HELP_TURNS_MAX {
            match inbox.next_short(backlog, settings) {
                Some(turn) => self.decide(turn),
                None => break,
            }
        }
        if !(may_commit && can_block()) {
            return inbox.leave(backlog, settings);
        }
        if !inbox.commit_alone(backlog, settings) {
            return;
        }
        match block_in_place(|| self.writer.commit_queued()) {
            Wrote::Done => {
                if let Some(turn) = inbox.wrote_alone(backlog, settings) {
                    self.decide(turn);
                }
            }
            Wrote::Again(at) => inbox.wrote_nothing(at),
            Wrote::Never => return,
        }
        inbox.leave(backlog, settings);
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

/// Only where the edge's other tasks can be handed to another thread.
fn can_block() -> bool {
    Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Hands requests over, and helps with them where that is quicker than waking somebody.
pub(crate) fn ask(
    shared: &Shared,
    asked: impl Iterator<Item = (Asked, u32)>,
    may_commit: bool,
) -> Result<(), Ended> {
    let Shared { inbox, backlog, settings, .. } = shared;
    let Some(turn) = inbox.push_or_take(asked, backlog, settings)? else { return Ok(()) };
    let helper = Helper { inbox, crew: shared.crew.get().and_then(Weak::upgrade) };
    if let Some(crew) = &helper.crew {
        crew.help(turn, may_commit);
    }
    Ok(())
}

/// The crew is let go before it is told: when it has ended, so has everything that could use the store.
struct Helper<'a> {
    inbox: &'a Inbox,
    crew: Option<Arc<Crew>>,
}

impl Drop for Helper<'_> {
    fn drop(&mut self) {
        self.crew = None;
        self.inbox.helped();
    }
}
