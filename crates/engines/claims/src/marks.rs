//! Changes to the row of a claim while its run goes on: marks and renewals of the lease.
//!
//! A mark says that the run has started: a lease that ends under a row without one costs no attempt.
//!
//! A claim marks the events that start at once in its own commit. A run that starts from the queue is marked by the
//! next commit that is made anyway, if it has lasted a moment; a run that lasts longer gets a commit of its own for the
//! mark. Only an event under suspicion (see `suspects.rs`) waits for its mark before it starts. While a mark is being
//! written the row changes, so the run is busy, as during a renewal.

use millrace_model::{ClaimRow, Mono, Now, RunMark, Ticket, Timestamp};

use crate::action::{Act, Then};
use crate::effect::{Effect, Run};
use crate::error::CommitError;
use crate::input::RunId;
use crate::run::Active;
use crate::timeout::Watch;
use crate::worker::{Phase, Worker};

/// How long a run counts as young, or a quarter of its lease if that is shorter. After that its start is written, and
/// an event that must run alone lets others run beside it.
const YOUNG_MS_MAX: u64 = 1000;
/// A run younger than that time divided by this number is not marked by commits of others: it will probably end before
/// they are durable.
const RIDE_PART: u64 = 10;

impl Worker {
    fn young_ms(&self, handler: usize) -> u64 {
        (self.handlers[handler].limits.lease_ms / 4).clamp(1, YOUNG_MS_MAX)
    }

    pub(crate) fn is_young(&self, now: Now, run: &Active) -> bool {
        now.mono < run.since + self.young_ms(run.handler)
    }

    /// When the last quarter of the lease begins. A run that still goes on then is marked as long: if its lease ends,
    /// the session was alive and the handler slow.
    fn late_from(&self, run: &Active) -> Timestamp {
        run.ticket.row.due.saturating_sub(self.handlers[run.handler].limits.lease_ms / 4)
    }

    /// How many events each claim of a flight may mark as to be started: the places that stay free until the flight is
    /// back, given to the handlers one by one in turn.
    pub(crate) fn starts_of(&self, now: Now, claims: &[(usize, usize)]) -> Vec<usize> {
        let mut starts = vec![0; claims.len()];
        if self.phase != Phase::Working || self.holding || self.is_paused(now) {
            return starts;
        }
        let places = self.config.handler_concurrency.saturating_sub(self.places_taken() + self.queued());
        let mut left = places.min(self.config.max_events_per_iteration.saturating_sub(self.started));
        let in_turn = |step: usize| self.order[(self.turn + step) % self.order.len()];
        let turns: Vec<usize> = (0..self.order.len())
            .filter_map(|step| claims.iter().position(|(at, _)| *at == in_turn(step)))
            .collect();
        loop {
            let before = left;
            for claim in &turns {
                let (at, wish) = claims[*claim];
                if left > 0 && starts[*claim] < wish.min(self.handlers[at].starts_max(now)) {
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
        let marks = |worker: &Worker, run: &Active| worker.mark_due(now, run);
        let due: Vec<_> = self.runs.iter().filter_map(|(id, run)| Some((*id, marks(self, run)?))).collect();
        for (run, mark) in due {
            self.mark(now, run, mark);
        }
    }

    fn mark_due(&self, now: Now, run: &Active) -> Option<RunMark> {
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

    /// Adds marks to a flight that leaves anyway.
    pub(crate) fn ride_along(&mut self, now: Now) {
        let rides = |run: &Active| {
            let lasted_ms = self.young_ms(run.handler) / RIDE_PART;
            let unmarked = run.ticket.row.run == RunMark::Unknown && now.mono >= run.since + lasted_ms;
            unmarked && run.may_be_marked(now)
        };
        let found: Vec<RunId> = self.runs.iter().filter(|(_, run)| rides(run)).map(|(id, _)| *id).collect();
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
        self.send(now, Act { checks, ops, then: Then::Marked { run, ticket } });
    }

    /// A run came back after its lease had ended. If the row does not yet say that the run was long, and nobody else
    /// has the event, writes that into the row.
    pub(crate) fn mark_lost(&mut self, now: Now, ticket: &Ticket) {
        if ticket.row.run < RunMark::Long {
            let row = ClaimRow { run: RunMark::Long, ..ticket.row.clone() };
            let marked = Ticket { row, ..ticket.clone() };
            let (checks, ops) = (vec![ticket.check()], vec![marked.put()]);
            self.send(now, Act { checks, ops, then: Then::Nothing });
        }
    }

    /// The mark is durable.
    pub(crate) fn marked(&mut self, now: Now, run: RunId, ticket: Ticket) {
        let Some(active) = self.runs.get_mut(&run) else { return };
        active.ticket = ticket;
        if active.begun {
            return self.go_on(now, run);
        }
        let (handler, ticket) = (active.handler, active.ticket.clone());
        if self.phase == Phase::Working && !self.is_stale(now, handler, &ticket) {
            return self.begin_run(now, run);
        }
        // The lease is too old to start the run: give the event back, which removes the mark.
        if let Some(handler) = self.drop_unbegun(run) {
            let act = self.give_back(now.wall, handler, &ticket);
            self.send(now, act);
        }
    }

    /// The mark was refused: another session has the event.
    pub(crate) fn mark_refused(&mut self, now: Now, run: RunId) {
        if self.runs.get(&run).is_some_and(|active| active.begun) {
            self.lease_lost(now, run);
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
            let act = self.renew(now.wall, run, handler, &ticket);
            self.send(now, act);
        }
    }

    pub(crate) fn renewed(&mut self, now: Now, run: RunId, ticket: Ticket) {
        if let Some(active) = self.runs.get_mut(&run) {
            active.ticket = ticket;
        }
        self.go_on(now, run);
    }

    /// Another session has the event, or may have it: nothing more of the run is written.
    pub(crate) fn lease_lost(&mut self, now: Now, run: RunId) {
        if let Some(active) = self.runs.get_mut(&run) {
            active.spoiled.get_or_insert(CommitError::LeaseExpired);
        }
        self.go_on(now, run);
    }

    /// Calls the handler.
    pub(crate) fn begin_run(&mut self, now: Now, run: RunId) {
        let Some(active) = self.runs.get_mut(&run) else { return };
        (active.begun, active.busy, active.since) = (true, false, now.mono);
        let timeout_ms = self.handlers[active.handler].limits.timeout_ms;
        active.watch = Watch::new(now, timeout_ms);
        let row = &active.ticket.row;
        self.effects.push(Effect::Run(Run {
            run,
            handler: active.handler,
            event: active.event.clone(),
            attempt: row.attempts.saturating_add(1),
            lease_until: row.due,
            timeout_ms,
        }));
    }
}
