//! Starts queued events, and gives them back if their lease has grown too old for a run.

use millrace_model::{Claimed, Now, RunMark, Ticket, never};

use crate::interface::effect::{Effect, HandlerRun};
use crate::interface::input::RunId;
use crate::running::run::ActiveRun;
use crate::worker::Worker;

/// The error of a dead letter if no run of the handler ever returned an error.
const LOST_RUNS: &str = "every run was lost: its process ended, or its lease ran out";

impl Worker {
    /// Whether events may be claimed and started now, as far as the session itself allows.
    pub(crate) fn may_start(&self, now: Now) -> bool {
        self.session.is_working() && !self.isolation.holds_starts() && !self.iteration.is_paused(now)
    }

    /// Starts queued events in the free slots, one of each handler in turn.
    pub(crate) fn start_runs(&mut self, now: Now) {
        if !self.session.is_working() {
            return;
        }
        if self.iteration.is_pause_over(now) {
            self.next_iteration();
        }
        self.isolation.let_start();
        while !self.iteration.has_pause() && self.slots_taken() < self.config.handler_concurrency {
            let marked = self.handlers.have_marked();
            if !marked && self.hold_for_suspects(now) {
                self.isolation.hold_starts();
                break;
            }
            let may_start = |handler: &crate::claiming::handler::Handler| match marked {
                true => handler.has_marked(),
                false => handler.has_queued() && handler.may_begin(now),
            };
            let Some(at) = self.handlers.next_in_rotation(may_start) else { break };
            let events_max = self.config.max_events_per_iteration;
            if self.iteration.left(events_max) == 0 {
                let has_backlog = self.handlers.iter().any(|handler| handler.is_last_claim_full());
                if has_backlog || !self.iteration.ends_with_pause(events_max, self.handlers.indices().len()) {
                    self.next_iteration();
                    continue;
                }
                self.iteration.pause_until(now.mono + self.config.event_poll_interval_ms);
                break;
            }
            let Some(claimed) = self.handlers[at].next_queued() else {
                never!(self.broken, "the queue of a handler that was to start an event is empty");
                break;
            };
            self.start_claimed(now, at, claimed);
        }
        if self.runs.is_empty() && self.handlers.queued() == 0 && !self.iteration.has_pause() {
            self.next_iteration();
        }
    }

    fn next_iteration(&mut self) {
        self.iteration.restart();
        self.handlers.restart_rotation();
    }

    /// Starts a claimed event; a run under suspicion begins when its mark is durable. Returns `None` if the event
    /// cannot be run.
    pub(crate) fn start_claimed(&mut self, now: Now, at: usize, claimed: Claimed) -> Option<RunId> {
        let Claimed { ticket, event } = claimed;
        if self.is_stale(now, at, &ticket) {
            let action = self.give_back(now.wall, at, &ticket);
            self.handlers[at].halve_prefetch();
            self.queue_action(now, action);
            return None;
        }
        let attempts = ticket.row.attempts;
        if attempts >= self.handlers[at].limits().max_attempts {
            let error = ticket.row.error.clone().unwrap_or_else(|| LOST_RUNS.to_owned());
            let action = self.give_up(now.wall, at, &ticket, &event, attempts, &error);
            self.queue_lingering(now, action);
            return None;
        }
        self.iteration.on_start();
        self.handlers[at].on_run_begins(now);
        let active = ActiveRun::new(now, at, ticket, event);
        let waits_for_mark = active.waits_for_mark();
        let run = self.runs.insert(active);
        match waits_for_mark {
            true => self.mark(now, run, RunMark::Started),
            false => self.call_handler(now, run),
        }
        Some(run)
    }

    pub(crate) fn call_handler(&mut self, now: Now, run: RunId) {
        let Some(active) = self.runs.must_get_mut(run, &self.broken) else { return };
        let timeout_ms = self.handlers[active.handler()].limits().timeout_ms;
        active.begin(now, timeout_ms);
        let row = &active.ticket().row;
        self.requests.push(Effect::Run(HandlerRun {
            run,
            handler: active.handler(),
            event: active.event().clone(),
            attempt: row.attempts.saturating_add(1),
            lease_until: row.due,
            timeout_ms,
        }));
    }

    /// Whether less than half of the lease is left, too little to start a run.
    pub(crate) fn is_stale(&self, now: Now, handler: usize, ticket: &Ticket) -> bool {
        is_stale(now, self.handlers[handler].lease_ms(), ticket)
    }

    /// Gives queued events back whose lease is growing old, before it ends, so that waiting costs no attempt.
    pub(crate) fn give_stale_back(&mut self, now: Now) {
        for at in self.handlers.indices() {
            if !self.handlers[at].fronts().any(|claimed| self.is_stale(now, at, &claimed.ticket)) {
                continue;
            }
            let lease_ms = self.handlers[at].lease_ms();
            let stale = self.handlers[at].remove_queued(|claimed| is_stale(now, lease_ms, &claimed.ticket));
            self.handlers[at].halve_prefetch();
            for claimed in stale {
                let action = self.give_back(now.wall, at, &claimed.ticket);
                self.queue_action(now, action);
            }
        }
    }

    pub(crate) fn give_all_back(&mut self, now: Now) {
        self.handlers.indices().for_each(|at| self.give_queue_back(now, at));
    }

    pub(crate) fn give_queue_back(&mut self, now: Now, at: usize) {
        for claimed in self.handlers[at].remove_queued(|_| true) {
            let action = self.give_back(now.wall, at, &claimed.ticket);
            self.queue_action(now, action);
        }
    }
}

fn is_stale(now: Now, lease_ms: u64, ticket: &Ticket) -> bool {
    now.wall + lease_ms / 2 > ticket.row.due
}
