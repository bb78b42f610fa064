//! Iterations: after `max_events_per_iteration` starts the worker pauses for the poll interval, unless it works through a
//! backlog or a stream: the events that it started before its last claim that got events do not count towards a pause.

use millrace_model::{Mono, Now};

#[derive(Debug, Default)]
pub(crate) struct Iteration {
    /// Runs begun in this iteration.
    started: usize,
    /// Runs begun since the last pause and the last claim that got events.
    since_claim: usize,
    /// Until when to pause before the next iteration.
    paused_until: Option<Mono>,
}

impl Iteration {
    /// Begins the next iteration.
    pub(crate) fn restart(&mut self) {
        let pauses = self.paused_until.is_some();
        let since_claim = if pauses { 0 } else { self.since_claim };
        *self = Iteration { since_claim, ..Iteration::default() };
    }

    pub(crate) fn on_start(&mut self) {
        self.started += 1;
        self.since_claim += 1;
    }

    /// A claim got events: more are to be handled than those that had been claimed before. News of events do not count
    /// by themselves, because they may be about events that an earlier claim got.
    pub(crate) fn on_claimed(&mut self) {
        self.since_claim = 0;
    }

    /// Whether the iteration that is over is followed by a pause. `events_max` is the budget of each handler: the claims
    /// of many handlers are not full although there is much to do. The end of a backlog that took many iterations is
    /// followed by none: its last events, claimed already, would wait for nothing.
    pub(crate) fn ends_with_pause(&self, events_max: usize, handlers: usize) -> bool {
        self.since_claim >= events_max.saturating_mul(handlers)
    }

    /// How many of `events_max` events may still start in this iteration.
    pub(crate) fn left(&self, events_max: usize) -> usize {
        events_max.saturating_sub(self.started)
    }

    pub(crate) fn pause_until(&mut self, until: Mono) {
        self.paused_until = Some(until);
    }

    /// Whether a pause was begun and the next iteration has not.
    pub(crate) fn has_pause(&self) -> bool {
        self.paused_until.is_some()
    }

    pub(crate) fn paused_until(&self) -> Option<Mono> {
        self.paused_until
    }

    pub(crate) fn is_paused(&self, now: Now) -> bool {
        self.paused_until.is_some_and(|until| now.mono < until)
    }

    pub(crate) fn is_pause_over(&self, now: Now) -> bool {
        self.paused_until.is_some_and(|until| until <= now.mono)
    }
}
