//! The worker's own retention: it starts a sweep (`sweep.rs`) at intervals and drives it step by step.

use millrace_model::{Mono, Now, Outcome};

use crate::interface::input::ReadResult;
use crate::requests::{PendingCommit, PendingRead};
use crate::upkeep::sweep::{Sweep, SweepRule, SweepStep};
use crate::worker::Worker;

#[derive(Debug)]
pub(crate) struct Retention {
    /// The sweep that is under way.
    sweep: Option<Box<Sweep>>,
    sweep_at: Mono,
    /// The rows of the handlers are written. Before that, retention would remove events that they are about to claim.
    registered: bool,
}

impl Retention {
    pub(crate) fn new() -> Retention {
        Retention { sweep: None, sweep_at: Mono(0), registered: false }
    }

    pub(crate) fn on_registered(&mut self) {
        self.registered = true;
    }

    pub(crate) fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }

    pub(crate) fn plan_sweep(&mut self, at: Mono) {
        self.sweep_at = at;
    }

    /// The sweep that was under way has ended or failed; the next one begins at `again_at`.
    pub(crate) fn end_sweep(&mut self, again_at: Mono) {
        self.sweep = None;
        self.sweep_at = again_at;
    }
}

impl Worker {
    pub(crate) fn wake_sweep(&mut self, now: Now) {
        if self.next_sweep().is_none_or(|at| now.mono < at) {
            return;
        }
        // Try again later, when the wall clock can be trusted.
        if !self.ages.believes(now, self.config.event_retention_ms.max(self.config.session_ttl_ms)) {
            self.retention.plan_sweep(now.mono + self.config.retention_interval_ms);
            return;
        }
        let counted_from = self.ages.latest(now);
        let events_before = counted_from.saturating_sub(self.config.event_retention_ms);
        let rule = SweepRule {
            namespace: self.identity.namespace.clone(),
            now: counted_from,
            events_before,
            unfinished_too: false,
            // The retention of a topic may be longer than the ages that are certain now.
            own_retention: self.ages.believes(now, u64::MAX),
            dead_letters_before: None,
            sessions_before: events_before.min(counted_from.saturating_sub(self.config.session_ttl_ms)),
            rows_max: self.config.retention_rows_max,
        };
        self.retention.sweep = Some(Box::new(Sweep::new(rule)));
        self.drive_sweep(now);
    }

    /// When the next sweep begins; `None` while one is under way, or if this worker may not sweep.
    pub(crate) fn next_sweep(&self) -> Option<Mono> {
        let Retention { sweep, sweep_at, registered } = &self.retention;
        (*registered && sweep.is_none() && self.config.retention_interval_ms > 0).then_some(*sweep_at)
    }

    fn drive_sweep(&mut self, now: Now) {
        let working = self.session.is_working();
        // A session that stops does not finish its sweep.
        let Some(sweep) = self.retention.sweep.as_mut().filter(|_| working) else {
            self.retention.sweep = None;
            return;
        };
        match sweep.step() {
            SweepStep::Read(query) => {
                self.requests.read(PendingRead::Sweep, query);
            }
            SweepStep::Commit(mut batch) => {
                batch.nonce = self.prng.next();
                self.requests.commit(PendingCommit::Sweep, batch);
            }
            SweepStep::Done(_) => {
                // Sessions that started together need not sweep together.
                let interval = self.config.retention_interval_ms;
                self.retention.end_sweep(now.mono + interval + self.prng.below(interval / 4 + 1));
            }
        }
    }

    pub(crate) fn on_sweep_committed(&mut self, now: Now, outcome: &Outcome) {
        if let (Outcome::Refused(_), Some(sweep)) = (outcome, self.retention.sweep.as_mut()) {
            sweep.refused();
        }
        self.drive_sweep(now);
    }

    pub(crate) fn on_sweep_read(&mut self, now: Now, result: Option<ReadResult>) {
        match (result, self.retention.sweep.as_mut()) {
            (Some(result), Some(sweep)) => {
                sweep.on_read(result);
                self.drive_sweep(now);
            }
            // Reading failed: try again later.
            _ => self.retention.end_sweep(now.mono + self.config.retention_interval_ms),
        }
    }
}
