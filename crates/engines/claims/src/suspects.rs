//! Events that may have ended the process that ran them.
//!
//! Suspicion stands in the claim's row (`Suspicion`), so every session that takes the event over knows of it. `Possible`:
//! the event starts when the mark of its run is durable; a process that ends because of it costs it an attempt. `Likely`:
//! it also starts alone. No run that is still young goes on beside it, nothing of earlier runs waits to become durable, and
//! while it is young itself, and until its ending is durable, nothing else starts and nothing is claimed. Two such events
//! never run at once in a session. So an event that ends its process costs each neighbour one attempt at most: the neighbour
//! is under suspicion from then on, and no longer beside it.
//!
//! Other events go first, for at most a quarter of a lease: a crash takes what a session has queued away for a whole one.

use millrace_model::{Claimed, Now, Suspicion, Timestamp};

use crate::handler::Handler;
use crate::worker::Worker;

impl Worker {
    /// Starts an event that has to run alone, if it is its turn. True while nothing else may start.
    pub(crate) fn hold_for_suspects(&mut self, now: Now) -> bool {
        if let Some(run) = self.isolated {
            let alone = match self.runs.get(&run) {
                Some(active) => !active.begun || self.is_young(now, active),
                None => self.is_writing(),
            };
            if alone {
                return true;
            }
            self.isolated = None;
        }
        let Some(at) = self.next_suspect(now) else { return false };
        let young = self.runs.values().any(|run| self.is_young(now, run));
        if young || self.is_writing() {
            return true;
        }
        if let Some(claimed) = self.handlers[at].suspects.pop_front() {
            self.isolated = self.start_claimed(now, at, claimed);
        }
        true
    }

    /// Something of this session is not durable yet.
    fn is_writing(&self) -> bool {
        self.flight.is_some() || !self.gate.is_empty()
    }

    /// Whose suspect is to be started.
    fn next_suspect(&self, now: Now) -> Option<usize> {
        let mut runs = self.runs.values();
        if runs.any(|run| run.ticket.row.suspicion == Suspicion::Likely) {
            return None;
        }
        let others = self.handlers.iter().any(|handler| !handler.queue.is_empty());
        self.order.iter().copied().find(|at| {
            let handler = &self.handlers[*at];
            let first = handler.suspects.front().filter(|_| handler.may_begin(now));
            first.is_some_and(|claimed| !others || now.wall >= turn_of(handler, claimed))
        })
    }

    pub(crate) fn next_turn_of_suspects(&self, now: Now) -> Option<millrace_model::Mono> {
        let turns = self.handlers.iter().filter_map(|handler| {
            handler.suspects.front().map(|claimed| now.mono_at(turn_of(handler, claimed)))
        });
        turns.filter(|at| *at > now.mono).min()
    }
}

/// From when on a suspect goes before others.
fn turn_of(handler: &Handler, claimed: &Claimed) -> Timestamp {
    let lease_ms = handler.limits.lease_ms;
    claimed.ticket.row.due.saturating_sub(lease_ms - lease_ms / 4)
}
