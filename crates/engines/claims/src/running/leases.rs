//! Renewals of the leases of running handlers, if `lease_renewal` is set.

use millrace_model::{ClaimRow, Now, RunMark, Ticket};

use crate::commits::action::{Action, FollowUp};
use crate::interface::error::CommitError;
use crate::interface::input::RunId;
use crate::worker::Worker;

impl Worker {
    /// Renews old leases of running handlers.
    pub(crate) fn renew_leases(&mut self, now: Now) {
        if !self.config.lease_renewal {
            return;
        }
        let old =
            self.runs.ids(|run| run.wants_lease(now.wall) && self.is_stale(now, run.handler(), run.ticket()));
        for run in old {
            self.renew(now, run);
        }
    }

    fn renew(&mut self, now: Now, run: RunId) {
        let Some(active) = self.runs.must_get_mut(run, &self.broken) else { return };
        active.row_changes();
        let lease_ms = self.handlers[active.handler()].lease_ms();
        let ticket = active.ticket();
        let mark = ticket.row.run.max(RunMark::Started);
        let row =
            ClaimRow { due: now.wall + lease_ms, for_ms: Some(lease_ms), run: mark, ..ticket.row.clone() };
        let renewed = Ticket { row, ..ticket.clone() };
        let (check, delete) = ticket.end();
        let (ops, follow_up) = (vec![delete, renewed.put()], FollowUp::Renewed { run, ticket: renewed });
        self.queue_action(now, Action { checks: vec![check], ops, follow_up });
    }

    pub(crate) fn on_renewed(&mut self, now: Now, run: RunId, ticket: Ticket) {
        if let Some(active) = self.runs.must_get_mut(run, &self.broken) {
            active.set_ticket(ticket);
        }
        self.resume_run(now, run);
    }

    /// Another session has the event, or may have it: nothing more of the run is written.
    pub(crate) fn on_lease_lost(&mut self, now: Now, run: RunId) {
        if let Some(active) = self.runs.must_get_mut(run, &self.broken) {
            active.fail(CommitError::LeaseExpired);
        }
        self.resume_run(now, run);
    }
}
