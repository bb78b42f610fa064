//! How threads and edges take turns at the jobs: the loop of a worker, and what the task of an edge does inline.
//!
//! [`Jobs`] does the work (`workers.rs`); this file has the order of the calls. The model check (`tests/schedule_model`)
//! runs the same file with work of its own.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use millrace_shell::Wrote;

use crate::inbox::{BacklogLevel, EdgeWork, Ended, Inbox, Turn, WorkerJob};
use crate::sync;

/// Turns that an edge runs in a row, for what a commit brings and for requests that came meanwhile. Then its own
/// connection must get on.
const INLINE_TURNS_MAX: usize = 4;

/// The inbox that a kind of workers takes its jobs from.
pub(crate) type InboxOf<J> = Inbox<<J as Jobs>::Request, <J as Jobs>::Completion, <J as Jobs>::Backlog>;

/// The work itself. Each method is called by one thread at a time, except that a turn may run beside a commit or
/// maintenance.
pub(crate) trait Jobs {
    type Request;
    type Completion;
    type Backlog: BacklogLevel;

    fn inbox(&self) -> &InboxOf<Self>;

    /// Runs the engine and returns how long it can do without another turn. `None` if there is no engine any more.
    fn turn(&self, turn: &mut Turn<Self::Request, Self::Completion>) -> Option<Duration>;

    fn commit(&self) -> Wrote;

    /// Returns when maintenance is next due. `None` when nothing can be written any more.
    fn maintenance(&self) -> Option<Instant>;

    /// Drops the engine.
    fn retire(&self);

    /// Whether the calling task may wait for the disk.
    fn can_commit_inline(&self) -> bool;

    /// Commits on the calling task.
    fn commit_inline(&self) -> Wrote;
}

/// Runs a thread of the workers.
pub(crate) fn run_worker<J: Jobs>(jobs: &J) {
    let inbox = jobs.inbox();
    loop {
        match inbox.next() {
            WorkerJob::Decide(turn) => decide(jobs, turn),
            WorkerJob::Commit => {
                let begun = sync::now();
                match jobs.commit() {
                    Wrote::Done(_) => inbox.wrote(begun),
                    Wrote::Again(at) => inbox.wrote_nothing(at),
                    // The schedule is not told, because the store has failed: no thread writes any more.
                    Wrote::Never => {}
                }
            }
            WorkerJob::Maintenance => {
                if let Some(next_at) = jobs.maintenance() {
                    inbox.maintenance_done(next_at);
                }
            }
            WorkerJob::Retire => jobs.retire(),
            WorkerJob::End => return,
        }
    }
}

/// How an edge hands requests over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EdgeMay {
    /// Commit on its own thread.
    pub(crate) commit: bool,
    /// Let other tasks of its thread go on before the turn.
    pub(crate) gather: bool,
}

/// Hands requests over, and runs their turn inline where that is quicker than waking a thread. If this returns a
/// [`Gathering`], the caller lets the other tasks of its thread go on and then ends it.
pub(crate) fn hand_over<'a, J: Jobs>(
    inbox: &'a InboxOf<J>,
    workers: &'a Weak<J>,
    requests: impl Iterator<Item = (J::Request, u32)>,
    may: EdgeMay,
) -> Result<Option<Gathering<'a, J>>, Ended> {
    match inbox.push_from_edge(requests, may.gather)? {
        EdgeWork::Turn(turn) => run_turn(inbox, workers, turn, may.commit),
        EdgeWork::Gather => return Ok(Some(Gathering { inbox, workers, is_over: false })),
        EdgeWork::Nothing => {}
    }
    Ok(None)
}

/// An edge's promise to look again at what waits. A gathering that is dropped wakes a thread instead.
pub(crate) struct Gathering<'a, J: Jobs> {
    inbox: &'a InboxOf<J>,
    workers: &'a Weak<J>,
    is_over: bool,
}

impl<J: Jobs> Gathering<'_, J> {
    /// Runs the turn over what has gathered, unless another thread has taken it.
    pub(crate) fn decide(mut self, may_commit: bool) {
        self.is_over = true;
        if let Some(turn) = self.inbox.end_gathering() {
            run_turn(self.inbox, self.workers, turn, may_commit);
        }
    }
}

impl<J: Jobs> Drop for Gathering<'_, J> {
    fn drop(&mut self) {
        if !self.is_over {
            self.inbox.gathering_dropped();
        }
    }
}

fn run_turn<J: Jobs>(
    inbox: &InboxOf<J>,
    workers: &Weak<J>,
    turn: Turn<J::Request, J::Completion>,
    may_commit: bool,
) {
    let inline = InlineGuard { inbox, workers: workers.upgrade() };
    if let Some(workers) = &inline.workers {
        run_inline(&**workers, turn, may_commit);
    }
}

/// Runs the turn on the task of an edge, and the commit of a lone publisher. The connection of that task waits for the
/// disk meanwhile.
fn run_inline<J: Jobs>(jobs: &J, turn: Turn<J::Request, J::Completion>, may_commit: bool) {
    let inbox = jobs.inbox();
    decide(jobs, turn);
    for _ in 1..INLINE_TURNS_MAX {
        match inbox.next_inline_turn() {
            Some(turn) => decide(jobs, turn),
            None => break,
        }
    }
    if !(may_commit && jobs.can_commit_inline()) {
        return inbox.wake_for_rest();
    }
    if !inbox.begin_inline_commit() {
        return;
    }
    let begun = sync::now();
    match jobs.commit_inline() {
        Wrote::Done(_) => {
            if let Some(turn) = inbox.inline_commit_done(begun) {
                decide(jobs, turn);
            }
        }
        Wrote::Again(at) => inbox.wrote_nothing(at),
        Wrote::Never => return,
    }
    inbox.wake_for_rest();
}

/// A turn that finds no engine is not reported as over: nobody decides any more.
fn decide<J: Jobs>(jobs: &J, mut turn: Turn<J::Request, J::Completion>) {
    if let Some(wait) = jobs.turn(&mut turn) {
        jobs.inbox().decided(turn, wait);
    }
}

/// Drops its reference to the workers before it reports that it has finished: when the threads have ended, nothing else
/// can use the store.
struct InlineGuard<'a, J: Jobs> {
    inbox: &'a InboxOf<J>,
    workers: Option<Arc<J>>,
}

impl<J: Jobs> Drop for InlineGuard<'_, J> {
    fn drop(&mut self) {
        self.workers = None;
        self.inbox.inline_finished();
    }
}
