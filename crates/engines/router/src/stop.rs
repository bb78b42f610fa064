//! Stopping the loop: first gracefully, then at once.

use millrace_model::{Now, OsFault};

use crate::interface::effect::Effect;
use crate::reports::messages::{self, RequestRef};
use crate::router::{Router, SHUTTING_DOWN, Stop};
use crate::routing::lanes::Task;
use crate::routing::pending::OutcomeTo;

impl Router {
    /// Ends the grace period: every client that still waits gets a 503 error.
    pub(crate) fn stop_now(&mut self, now: Now) {
        self.stop = if self.stop == Stop::Done { Stop::Done } else { Stop::Asked };
        let fault = OsFault::new(503, SHUTTING_DOWN);
        for task in self.lanes.take_user() {
            if let Task::Client { conn, message, .. } = task
                && message.kind.is_request()
            {
                self.refuse(now, OutcomeTo::Client(conn), &message, &fault);
            }
        }
        // Timers keep their rows: the next process sends their events again.
        for capability in self.table.ids() {
            self.give_up_places(now, capability, SHUTTING_DOWN);
        }
        let waiting: Vec<_> =
            self.pending.all().map(|(id, pending)| (id.clone(), pending.delivery)).collect();
        for (id, delivery) in waiting {
            let Some(pending) = self.forget(&id, delivery) else { continue };
            // A timer keeps its row and fires again in the next process.
            if let OutcomeTo::Client(_) = pending.requester {
                let asked = RequestRef { id, ty: pending.ty, correlation: pending.correlation };
                let message = messages::error(&mut self.ids, now, &asked, &fault);
                self.give(pending.requester, message);
            }
        }
    }

    pub(crate) fn stop_if_finished(&mut self) {
        let is_idle = self.pending.is_empty() && self.lanes.is_empty() && self.waiting_events.count == 0;
        if self.stop == Stop::Asked && is_idle {
            self.stop = Stop::Done;
            self.effects.push(Effect::Stopped);
        }
    }
}
