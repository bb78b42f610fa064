//! Iterations: after `max_events_per_iteration` starts the worker pauses for the poll interval.

use millrace_model::{Mono, Now};

#[derive(Debug, Default)]
pub(crate) struct Iteration {
    /// Runs begun in this iteration.
    started: usize,
    /// Until when to pause before the next iteration.
    paused_until: Option<Mono>,
}

impl Iteration {
    /// Begins the next iteration.
    pub(crate) fn restart(&mut self) {
        *self = Iteration::default();
    }

    pub(crate) fn on_start(&mut self) {
        self.started += 1;
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
