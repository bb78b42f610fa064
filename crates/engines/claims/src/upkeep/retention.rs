//! The worker's own retention: it starts a sweep (`sweep.rs`) at intervals and drives it step by step.

use millrace_model::{Now, Outcome};

use crate::interface::effect::Effect;
use crate::interface::input::ReadResult;
use crate::upkeep::sweep::{Sweep, SweepRule, SweepStep};
use crate::worker::{Pending, Phase, Worker};

impl Worker {
    pub(crate) fn wake_sweep(&mut self, now: Now) {
        if !self.may_sweep() || now.mono < self.sweep_at {
            return;
        }
        // Try again later, when the wall clock can be trusted.
        if !self.ages.believes(now, self.config.event_retention_ms.max(self.config.session_ttl_ms)) {
            self.sweep_at = now.mono + self.config.retention_interval_ms;
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
        self.sweep = Some(Box::new(Sweep::new(rule)));
        self.drive_sweep(now);
    }

    pub(crate) fn may_sweep(&self) -> bool {
        self.registered && self.sweep.is_none() && self.config.retention_interval_ms > 0
    }

    pub(crate) fn drive_sweep(&mut self, now: Now) {
        let Some(sweep) = self.sweep.as_mut().filter(|_| self.phase == Phase::Working) else {
            self.sweep = None;
            return;
        };
        match sweep.step() {
            SweepStep::Read(query) => {
                let token = self.token(Pending::SweepRead);
                self.effects.push(Effect::Read { token, query });
            }
            SweepStep::Commit(mut batch) => {
                batch.nonce = self.prng.next();
                let token = self.token(Pending::SweepCommit);
                self.effects.push(Effect::Commit { token, batch });
            }
            SweepStep::Done(_) => {
                self.sweep = None;
                // Sessions that started together need not sweep together.
                let interval = self.config.retention_interval_ms;
                self.sweep_at = now.mono + interval + self.prng.below(interval / 4 + 1);
            }
        }
    }

    pub(crate) fn sweep_committed(&mut self, now: Now, outcome: &Outcome) {
        if let (Outcome::Refused(_), Some(sweep)) = (outcome, self.sweep.as_mut()) {
            sweep.refused();
        }
        self.drive_sweep(now);
    }

    pub(crate) fn on_sweep_read(&mut self, now: Now, result: Option<ReadResult>) {
        match (result, self.sweep.as_mut()) {
            (Some(result), Some(sweep)) => {
                sweep.on_read(result);
                self.drive_sweep(now);
            }
            // Reading failed: try again later.
            _ => {
                self.sweep = None;
                self.sweep_at = now.mono + self.config.retention_interval_ms;
            }
        }
    }
}
