//! Marks in the rows of claims: that a run has started, or is long.
//!
//! A mark says that the run has started: a lease that ends under a row without one costs no attempt.
//!
//! A claim marks the events that start at once in its own commit. A run that starts from the queue is marked by the
//! next commit that is made anyway, if it has lasted a moment; a run that lasts longer gets a commit of its own for the
//! mark. Only an event under suspicion (see `suspects.rs`) waits for its mark before it starts. While a mark is being
//! written the row changes, so the run is busy, as during a renewal (`leases.rs`).

use millrace_model::{ClaimRow, Mono, Now, RunMark, Ticket, Timestamp};

use crate::commits::action::{Action, FollowUp};
use crate::interface::input::RunId;
use crate::running::run::ActiveRun;
use crate::worker::Worker;

/// How long a run counts as young, or a quarter of its lease if that is shorter. After that its start is written, and
/// an event that must run alone lets others run beside it.
const YOUNG_MS_MAX: u64 = 1000;
/// A run younger than that time divided by this number is not marked by commits of others: it will probably end before
/// they are durable.
const SHARED_MARK_DIVISOR: u64 = 10;

impl Worker {
    fn young_ms(&self, handler: usize) -> u64 {
        (self.handlers[handler].lease_ms() / 4).clamp(1, YOUNG_MS_MAX)
    }

    pub(crate) fn is_young(&self, now: Now, run: &ActiveRun) -> bool {
        now.mono < run.since() + self.young_ms(run.handler())
    }

    /// When the last quarter of the lease begins. A run that still goes on then is marked as long: if its lease ends,
    /// the session was alive and the handler slow.
    fn late_from(&self, run: &ActiveRun) -> Timestamp {
        run.ticket().row.due.saturating_sub(self.handlers[run.handler()].lease_ms() / 4)
    }

    /// Marks runs whose row is behind: their start, or that they are long, is not written yet.
    pub(crate) fn mark_runs(&mut self, now: Now) {
        let due: Vec<_> =
            self.runs.iter().filter_map(|(id, run)| Some((id, self.mark_due(now, run)?))).collect();
        for (run, mark) in due {
            self.mark(now, run, mark);
        }
    }

    fn mark_due(&self, now: Now, run: &ActiveRun) -> Option<RunMark> {
        if !run.may_be_marked(now) {
            return None;
        }
        let late = !self.config.lease_renewal && now.wall >= self.late_from(run);
        let mark = match (late, self.is_young(now, run)) {
            (true, _) => RunMark::Long,
            (false, false) => RunMark::Started,
            (false, true) => return None,
        };
        (mark > run.ticket().row.run).then_some(mark)
    }

    /// When the next mark is due, or a run stops being young.
    pub(crate) fn next_mark(&self, now: Now) -> Option<Mono> {
        let wakes = self.runs.values().flat_map(|run| {
            let grown = Some(run.since() + self.young_ms(run.handler())).filter(|at| *at > now.mono);
            let never = self.config.lease_renewal || run.ticket().row.run == RunMark::Long;
            let late = (!never && run.may_be_marked(now)).then(|| now.mono_at(self.late_from(run)));
            [grown, late].into_iter().flatten()
        });
        wakes.min()
    }

    /// Adds marks to a shared commit that is made anyway.
    pub(crate) fn mark_with_commit(&mut self, now: Now) {
        let unmarked = self.runs.ids(|run| {
            let lasted_ms = self.young_ms(run.handler()) / SHARED_MARK_DIVISOR;
            let unmarked = run.ticket().row.run == RunMark::Unknown && now.mono >= run.since() + lasted_ms;
            unmarked && run.may_be_marked(now)
        });
        for run in unmarked {
            self.mark(now, run, RunMark::Started);
        }
    }

    pub(crate) fn mark(&mut self, now: Now, run: RunId, mark: RunMark) {
        let Some(active) = self.runs.must_get_mut(run, &self.broken) else { return };
        active.row_changes();
        let row = ClaimRow { run: mark, ..active.ticket().row.clone() };
        let ticket = Ticket { row, ..active.ticket().clone() };
        let (checks, ops) = (vec![active.ticket().check()], vec![ticket.put()]);
        self.queue_action(now, Action { checks, ops, follow_up: FollowUp::Marked { run, ticket } });
    }

    /// A run came back after its lease had ended. If the row does not yet say that the run was long, and nobody else
    /// has the event, writes that into the row.
    pub(crate) fn mark_lost(&mut self, now: Now, ticket: &Ticket) {
        if ticket.row.run < RunMark::Long {
            let row = ClaimRow { run: RunMark::Long, ..ticket.row.clone() };
            let marked = Ticket { row, ..ticket.clone() };
            let (checks, ops) = (vec![ticket.check()], vec![marked.put()]);
            self.queue_action(now, Action { checks, ops, follow_up: FollowUp::Nothing });
        }
    }

    /// The mark is durable.
    pub(crate) fn on_marked(&mut self, now: Now, run: RunId, ticket: Ticket) {
        let Some(active) = self.runs.must_get_mut(run, &self.broken) else { return };
        active.set_ticket(ticket);
        if active.is_begun() {
            return self.resume_run(now, run);
        }
        let (handler, ticket) = (active.handler(), active.ticket().clone());
        if self.session.is_working() && !self.is_stale(now, handler, &ticket) {
            return self.call_handler(now, run);
        }
        // The lease is too old to start the run: give the event back, which removes the mark.
        self.drop_unbegun(run);
        let action = self.give_back(now.wall, handler, &ticket);
        self.queue_action(now, action);
    }

    /// The mark was refused: another session has the event.
    pub(crate) fn on_mark_refused(&mut self, now: Now, run: RunId) {
        match self.runs.must_get(run, &self.broken) {
            Some(active) if active.is_begun() => self.on_lease_lost(now, run),
            Some(_) => self.drop_unbegun(run),
            None => {}
        }
    }

    fn drop_unbegun(&mut self, run: RunId) {
        if let Some(active) = self.runs.must_remove(run, &self.broken) {
            self.handlers[active.handler()].on_run_ended(active.is_acked(), &self.broken);
        }
    }
}
