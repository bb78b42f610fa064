//! Changes to the row of a claim while its run goes on: marks and renewals of the lease.
//!
//! A mark says that the run has started: a lease that ends under a row without one costs no attempt.
//!
//! A claim marks the events that start at once in its own commit. A run that starts from the queue is marked by the
//! next commit that is made anyway, if it has lasted a moment; a run that lasts longer gets a commit of its own for the
//! mark. Only an event under suspicion (see `suspects.rs`) waits for its mark before it starts. While a mark is being
//! written the row changes, so the run is busy, as during a renewal.

use millrace_model::{ClaimRow, Mono, Now, RunMark, Ticket, Timestamp};

use crate::commits::action::{Action, FollowUp};
use crate::interface::effect::{Effect, HandlerRun};
use crate::interface::error::CommitError;
use crate::interface::input::RunId;
use crate::running::run::ActiveRun;
use crate::running::timeout::RunTimer;
use crate::worker::{Phase, Worker};

/// How long a run counts as young, or a quarter of its lease if that is shorter. After that its start is written, and
/// an event that must run alone lets others run beside it.
const YOUNG_MS_MAX: u64 = 1000;
/// A run younger than that time divided by this number is not marked by commits of others: it will probably end before
/// they are durable.
const SHARED_MARK_DIVISOR: u64 = 10;

impl Worker {
    fn young_ms(&self, handler: usize) -> u64 {
        (self.handlers[handler].limits.lease_ms / 4).clamp(1, YOUNG_MS_MAX)
    }

    pub(crate) fn is_young(&self, now: Now, run: &ActiveRun) -> bool {
        now.mono < run.since + self.young_ms(run.handler)
    }

    /// When the last quarter of the lease begins. A run that still goes on then is marked as long: if its lease ends,
    /// the session was alive and the handler slow.
    fn late_from(&self, run: &ActiveRun) -> Timestamp {
        run.ticket.row.due.saturating_sub(self.handlers[run.handler].limits.lease_ms / 4)
    }

    /// How many events each claim of a shared commit may mark as to be started: the slots that stay free until the
    /// commit is durable, given to the handlers one by one in their order.
    pub(crate) fn starts_of(&self, now: Now, claims: &[(usize, usize)]) -> Vec<usize> {
        let mut starts = vec![0; claims.len()];
        if self.phase != Phase::Working || self.starts_held || self.is_paused(now) {
            return starts;
        }
        let slots = self.config.handler_concurrency.saturating_sub(self.slots_taken() + self.queued());
        let mut left = slots.min(self.config.max_events_per_iteration.saturating_sub(self.started));
        let in_order = |step: usize| self.order[(self.next_in_order + step) % self.order.len()];
        let claims_in_order: Vec<usize> = (0..self.order.len())
            .filter_map(|step| claims.iter().position(|(at, _)| *at == in_order(step)))
            .collect();
        loop {
            let before = left;
            for claim in &claims_in_order {
                let (at, wanted) = claims[*claim];
                if left > 0 && starts[*claim] < wanted.min(self.handlers[at].starts_max(now)) {
                    starts[*claim] += 1;
                    left -= 1;
                }
            }
            if left == before {
                return starts;
            }
        }
    }

    /// Marks runs whose row is behind: their start, or that they are long, is not written yet.
    pub(crate) fn mark_runs(&mut self, now: Now) {
        let marks = |worker: &Worker, run: &ActiveRun| worker.mark_due(now, run);
        let due: Vec<_> = self.runs.iter().filter_map(|(id, run)| Some((*id, marks(self, run)?))).collect();
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
        (mark > run.ticket.row.run).then_some(mark)
    }

    /// When the next mark is due, or a run stops being young.
    pub(crate) fn next_mark(&self, now: Now) -> Option<Mono> {
        let wakes = self.runs.values().flat_map(|run| {
            let grown = Some(run.since + self.young_ms(run.handler)).filter(|at| *at > now.mono);
            let never = self.config.lease_renewal || run.ticket.row.run == RunMark::Long;
            let late = (!never && run.may_be_marked(now)).then(|| now.mono_at(self.late_from(run)));
            [grown, late].into_iter().flatten()
        });
        wakes.min()
    }

    /// Adds marks to a shared commit that is made anyway.
    pub(crate) fn mark_with_commit(&mut self, now: Now) {
        let is_unmarked = |run: &ActiveRun| {
            let lasted_ms = self.young_ms(run.handler) / SHARED_MARK_DIVISOR;
            let unmarked = run.ticket.row.run == RunMark::Unknown && now.mono >= run.since + lasted_ms;
            unmarked && run.may_be_marked(now)
        };
        let found: Vec<RunId> =
            self.runs.iter().filter(|(_, run)| is_unmarked(run)).map(|(id, _)| *id).collect();
        for run in found {
            self.mark(now, run, RunMark::Started);
        }
    }

    pub(crate) fn mark(&mut self, now: Now, run: RunId, mark: RunMark) {
        let Some(active) = self.runs.get_mut(&run) else { return };
        active.busy = true;
        let row = ClaimRow { run: mark, ..active.ticket.row.clone() };
        let ticket = Ticket { row, ..active.ticket.clone() };
        let (checks, ops) = (vec![active.ticket.check()], vec![ticket.put()]);
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
        let Some(active) = self.runs.get_mut(&run) else { return };
        active.ticket = ticket;
        if active.begun {
            return self.resume_run(now, run);
        }
        let (handler, ticket) = (active.handler, active.ticket.clone());
        if self.phase == Phase::Working && !self.is_stale(now, handler, &ticket) {
            return self.call_handler(now, run);
        }
        // The lease is too old to start the run: give the event back, which removes the mark.
        if let Some(handler) = self.drop_unbegun(run) {
            let action = self.give_back(now.wall, handler, &ticket);
            self.queue_action(now, action);
        }
    }

    /// The mark was refused: another session has the event.
    pub(crate) fn on_mark_refused(&mut self, now: Now, run: RunId) {
        if self.runs.get(&run).is_some_and(|active| active.begun) {
            self.on_lease_lost(now, run);
        } else {
            self.drop_unbegun(run);
        }
    }

    fn drop_unbegun(&mut self, run: RunId) -> Option<usize> {
        let handler = self.runs.remove(&run)?.handler;
        self.handlers[handler].running -= 1;
        Some(handler)
    }

    /// Renews old leases of running handlers, if `lease_renewal` is set.
    pub(crate) fn renew_leases(&mut self, now: Now) {
        if !self.config.lease_renewal {
            return;
        }
        let old: Vec<RunId> = self
            .runs
            .iter()
            .filter(|(_, run)| run.wants_lease(now.wall) && self.is_stale(now, run.handler, &run.ticket))
            .map(|(id, _)| *id)
            .collect();
        for run in old {
            let Some(active) = self.runs.get_mut(&run) else { continue };
            active.busy = true;
            let (handler, ticket) = (active.handler, active.ticket.clone());
            let action = self.renew(now.wall, run, handler, &ticket);
            self.queue_action(now, action);
        }
    }

    pub(crate) fn on_renewed(&mut self, now: Now, run: RunId, ticket: Ticket) {
        if let Some(active) = self.runs.get_mut(&run) {
            active.ticket = ticket;
        }
        self.resume_run(now, run);
    }

    /// Another session has the event, or may have it: nothing more of the run is written.
    pub(crate) fn on_lease_lost(&mut self, now: Now, run: RunId) {
        if let Some(active) = self.runs.get_mut(&run) {
            active.commit_error.get_or_insert(CommitError::LeaseExpired);
        }
        self.resume_run(now, run);
    }

    /// Calls the handler.
    pub(crate) fn call_handler(&mut self, now: Now, run: RunId) {
        let Some(active) = self.runs.get_mut(&run) else { return };
        (active.begun, active.busy, active.since) = (true, false, now.mono);
        let timeout_ms = self.handlers[active.handler].limits.timeout_ms;
        active.timer = RunTimer::new(now, timeout_ms);
        let row = &active.ticket.row;
        self.effects.push(Effect::Run(HandlerRun {
            run,
            handler: active.handler,
            event: active.event.clone(),
            attempt: row.attempts.saturating_add(1),
            lease_until: row.due,
            timeout_ms,
        }));
    }
}
