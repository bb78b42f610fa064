//! Events under suspicion: they may have ended the process that ran them (a crash, an OOM kill).
//!
//! The claim's row records the suspicion (`Suspicion`), so every session that takes over the event knows of it.
//!
//! `Possible`: the event starts when the mark of its run is durable, so that the run costs an attempt if it ends its
//! process.
//!
//! `Likely`: the event also starts alone. The event waits until no other run is young (`marks.rs`) and everything of
//! earlier runs is durable; and while its own run is young, and until its ending is durable, nothing else starts and
//! nothing is claimed. Two such events never run at the same time in a session. So an event that ends its process costs
//! each of its neighbours at most one attempt: from then on a neighbour is under suspicion itself, and no longer runs
//! beside it.
//!
//! Other events go first, for at most a quarter of a lease: a crash would make the session's queued events unavailable
//! for a whole lease.

use millrace_model::{Claimed, Mono, Now, Suspicion, Timestamp, never};

use crate::claiming::handler::Handler;
use crate::interface::input::RunId;
use crate::worker::Worker;

/// Which run is alone in the session.
#[derive(Debug, Default)]
pub(crate) struct Isolation {
    /// The run that is or was last alone; it may have ended.
    run: Option<RunId>,
    /// Nothing is started or claimed, because an event runs alone or is about to.
    starts_held: bool,
}

impl Isolation {
    pub(crate) fn holds_starts(&self) -> bool {
        self.starts_held
    }

    pub(crate) fn hold_starts(&mut self) {
        self.starts_held = true;
    }

    pub(crate) fn let_start(&mut self) {
        self.starts_held = false;
    }
}

impl Worker {
    /// Starts an event that must run alone, if it is the next to start. Returns true while nothing else may start.
    pub(crate) fn hold_for_suspects(&mut self, now: Now) -> bool {
        if let Some(run) = self.isolation.run {
            let alone = match self.runs.get(run) {
                Some(active) => !active.is_begun() || self.is_young(now, active),
                None => !self.commits.is_quiet(),
            };
            if alone {
                return true;
            }
            self.isolation.run = None;
        }
        let Some(at) = self.next_suspect(now) else { return false };
        let young = self.runs.any(|run| self.is_young(now, run));
        if young || !self.commits.is_quiet() {
            return true;
        }
        match self.handlers[at].next_suspect() {
            Some(claimed) => self.isolation.run = self.start_claimed(now, at, claimed),
            None => never!(self.broken, "the suspect that was to start is gone"),
        }
        true
    }

    /// Returns the handler whose suspect is to be started next.
    fn next_suspect(&self, now: Now) -> Option<usize> {
        if self.runs.any(|run| run.ticket().row.suspicion == Suspicion::Likely) {
            return None;
        }
        let others = self.handlers.iter().any(Handler::has_queued);
        self.handlers.by_priority().find(|at| {
            let handler = &self.handlers[*at];
            let first = handler.first_suspect().filter(|_| handler.may_begin(now));
            first.is_some_and(|claimed| !others || now.wall >= goes_first_from(handler, claimed))
        })
    }

    pub(crate) fn next_suspect_deadline(&self, now: Now) -> Option<Mono> {
        let times = self.handlers.iter().filter_map(|handler| {
            handler.first_suspect().map(|claimed| now.mono_at(goes_first_from(handler, claimed)))
        });
        times.filter(|at| *at > now.mono).min()
    }
}

/// From when on a suspect goes before other events.
fn goes_first_from(handler: &Handler, claimed: &Claimed) -> Timestamp {
    let lease_ms = handler.lease_ms();
    claimed.ticket.row.due.saturating_sub(lease_ms - lease_ms / 4)
}
