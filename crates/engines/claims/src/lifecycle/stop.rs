//! The end of a session: a graceful stop, or a failure of the store.

use millrace_model::Now;

use crate::interface::effect::Effect;
use crate::interface::error::CommitError;
use crate::lifecycle::session::Phase;
use crate::worker::Worker;

impl Worker {
    pub(crate) fn stop(&mut self, now: Now) {
        match self.session.phase() {
            Phase::Working => {
                self.session.stop(now, &self.config);
                self.give_all_back(now);
            }
            // The session has claimed and registered nothing yet.
            Phase::Fresh | Phase::Starting => {
                self.session.end();
                self.requests.push(Effect::Stopped { failed: None });
            }
            Phase::Stopping | Phase::Closing | Phase::Stopped | Phase::Failed => {}
        }
    }

    /// When everything else is done: writes that this session has stopped, then ends.
    pub(crate) fn finish_stop(&mut self, now: Now) {
        if !self.runs.is_empty() || !self.commits.is_quiet() {
            return;
        }
        match self.session.phase() {
            Phase::Stopping => {
                let action = self.session_action(now, true);
                self.session.close();
                self.queue_action(now, action);
                self.commit_next(now);
            }
            Phase::Closing => {
                self.session.end();
                self.requests.push(Effect::Stopped { failed: None });
            }
            _ => {}
        }
    }

    /// Ends the session at once: whether the commits under way are written is unknown.
    pub(crate) fn on_storage_failed(&mut self, reason: String) {
        if matches!(self.session.phase(), Phase::Failed | Phase::Stopped) {
            return;
        }
        for run in self.requests.give_up() {
            self.requests.answer(run, Err(CommitError::StorageFailed { reason: reason.clone() }));
        }
        self.commits.give_up();
        self.handlers.drop_queued();
        self.session.fail(reason.clone());
        self.requests.push(Effect::Stopped { failed: Some(reason) });
    }
}
