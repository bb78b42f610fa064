//! The worker's state, its public methods, and the dispatch of each input.

use millrace_model::{AgeGuard, Broken, Elapsed, Mono, Now, Outcome, RunCounts, Timestamp, TopicKey};

use crate::claiming::handler::Handler;
use crate::claiming::handlers::Handlers;
use crate::claiming::stranded::StrandedClaims;
use crate::commits::follow_up::EndedRuns;
use crate::commits::shared_commit::SharedCommits;
use crate::interface::config::WorkerConfig;
use crate::interface::effect::Effect;
use crate::interface::error::SpecError;
use crate::interface::input::{Input, ReadResult, Token};
use crate::interface::settings::Limits;
use crate::interface::spec::{HandlerSpec, ScheduleSpec, WorkerIdentity};
use crate::lifecycle::namespace_rows::TopicTable;
use crate::lifecycle::session::{Phase, SessionState};
use crate::lifecycle::start::Startup;
use crate::lifecycle::validate::check;
use crate::prng::Prng;
use crate::requests::{PendingCommit, PendingRead, Requests};
use crate::running::iteration::Iteration;
use crate::running::runs::Runs;
use crate::running::suspects::Isolation;
use crate::running::timeout::HangingRuns;
use crate::schedules::schedule::Schedule;
use crate::upkeep::delayed::DueMover;
use crate::upkeep::retention::Retention;

/// The worker of one session. Owned by one loop:
///
/// ```text
/// worker.handle(now, input)           // Input::Tick when the deadline has come, and once at the beginning
/// for effect in worker.drain() { ... }
/// wait until worker.next_deadline() or the next input
/// ```
#[derive(Debug)]
pub struct Worker {
    // Given at the creation.
    pub(crate) config: WorkerConfig,
    pub(crate) identity: WorkerIdentity,
    // Used by every part.
    pub(crate) requests: Requests,
    pub(crate) commits: SharedCommits,
    pub(crate) prng: Prng,
    pub(crate) broken: Broken,
    // The session.
    pub(crate) session: SessionState,
    pub(crate) startup: Startup,
    pub(crate) topics: TopicTable,
    // Handlers, and what they run.
    pub(crate) handlers: Handlers,
    pub(crate) stranded: StrandedClaims,
    pub(crate) runs: Runs,
    pub(crate) hanging: HangingRuns,
    pub(crate) isolation: Isolation,
    pub(crate) iteration: Iteration,
    pub(crate) ended: EndedRuns,
    // Work besides handlers.
    pub(crate) schedules: Vec<Schedule>,
    pub(crate) mover: DueMover,
    pub(crate) retention: Retention,
    // Clocks.
    /// The clock that delays are counted on; restored when the store's row of it is read.
    pub(crate) elapsed: Elapsed,
    pub(crate) ages: AgeGuard,
    now: Now,
}

/// Counters of a worker since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// How runs ended, as far as that is durable.
    pub runs: RunCounts,
    /// States that the engine believes cannot occur: 0 unless the engine has a bug.
    pub broken: u64,
}

impl Worker {
    /// `seed` must be random: jitter and the nonces of batches are derived from it.
    pub fn new(
        config: WorkerConfig,
        identity: WorkerIdentity,
        handlers: Vec<HandlerSpec>,
        schedules: Vec<ScheduleSpec>,
        seed: u64,
    ) -> Result<Worker, SpecError> {
        check(&config, &identity, &handlers, &schedules)?;
        let handlers = handlers.into_iter().map(|spec| {
            let topic = TopicKey::new(&identity.namespace, &spec.topic);
            let limits = Limits::of(&config, &spec)?;
            Ok(Handler::new(spec, topic, limits, config.event_claim_limit))
        });
        let schedules = schedules.into_iter().map(|spec| Schedule::new(&identity.namespace, spec));
        Ok(Worker {
            requests: Requests::default(),
            commits: SharedCommits::default(),
            prng: Prng::new(seed),
            broken: Broken::default(),
            session: SessionState::new(),
            startup: Startup::default(),
            topics: TopicTable::default(),
            handlers: Handlers::new(handlers.collect::<Result<_, _>>()?),
            stranded: StrandedClaims::default(),
            runs: Runs::default(),
            hanging: HangingRuns::default(),
            isolation: Isolation::default(),
            iteration: Iteration::default(),
            ended: EndedRuns::default(),
            schedules: schedules.collect::<Result<_, _>>()?,
            mover: DueMover::default(),
            retention: Retention::new(),
            elapsed: Elapsed::default(),
            ages: AgeGuard::new(config.clock_settle_ms),
            now: Now::default(),
            config,
            identity,
        })
    }

    /// Handles one input. Effects accumulate until they are drained.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.now = now;
        self.ages.tell(now);
        if self.session.phase() == Phase::Fresh && !matches!(input, Input::Failed { .. }) {
            self.start_up(now);
        }
        self.cut_late_runs(now);
        match input {
            Input::News { topics: Some(topics) } => {
                topics.iter().for_each(|topic| self.handlers.on_new_events(topic));
            }
            Input::News { topics: None } => self.handlers.on_any_events(),
            Input::Delayed => self.mover.on_news(),
            Input::Committed { token, outcome } => self.on_commit(now, token, outcome),
            Input::TooLarge { token, bytes, limit } => self.on_too_large(now, token, bytes, limit),
            Input::Failed { reason } => self.on_storage_failed(reason),
            Input::ReadDone { token, result } => self.on_read(now, token, result),
            Input::Commit { run, commit } => self.handler_commit(now, run, commit, None),
            Input::CommitAndAck { run, commit, emitted } => {
                self.handler_commit(now, run, commit, Some(emitted));
            }
            Input::Finished { run, result } => self.on_finished(now, run, result),
            Input::Stop => self.stop(now),
            Input::Tick => {}
        }
        self.settle(now);
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    pub fn drain(&mut self) -> Vec<Effect> {
        self.requests.drain()
    }

    pub fn counts(&self) -> WorkerCounts {
        WorkerCounts { runs: self.ended.counts, broken: self.broken.count() }
    }

    /// Returns when [`Input::Tick`] must be given at the latest; `None` = not before the next input.
    pub fn next_deadline(&self) -> Option<Mono> {
        let now = self.now;
        match self.session.phase() {
            Phase::Fresh => return Some(now.mono),
            Phase::Stopped | Phase::Failed => return None,
            Phase::Starting => return self.startup.retry_at(),
            Phase::Working | Phase::Stopping | Phase::Closing => {}
        }
        let stale_at = |lease_ms: u64, due: Timestamp| {
            // The first moment at which `is_stale` holds.
            now.mono_at(due.saturating_sub(lease_ms / 2) + 1)
        };
        let polls = !self.config.alone;
        let mut wakes = Vec::with_capacity(8);
        wakes.extend(polls.then_some(self.session.heartbeat_at()));
        wakes.extend(self.commits.next_commit());
        if self.config.lease_renewal {
            let held = self.runs.values().filter(|run| run.wants_lease(now.wall));
            let lease_ms = |at: usize| self.handlers[at].lease_ms();
            wakes.extend(held.map(|run| stale_at(lease_ms(run.handler()), run.ticket().row.due)));
        }
        wakes.extend(self.next_mark(now));
        wakes.extend(self.next_cut(now));
        if self.session.is_working() {
            wakes.extend(self.next_suspect_deadline(now));
            wakes.extend(polls.then_some(self.session.refresh_at()));
            wakes.extend(self.stranded.wake());
            wakes.extend(self.iteration.paused_until());
            wakes.extend(self.next_fire(now));
            wakes.extend(self.next_due(now));
            wakes.extend(self.handlers.iter().filter_map(|handler| handler.next_wake(now, polls)));
            wakes.extend(self.handlers.iter().filter_map(|handler| handler.rate_wake(now)));
            let queued = self.handlers.iter().flat_map(|handler| {
                handler.fronts().map(|claimed| stale_at(handler.lease_ms(), claimed.ticket.row.due))
            });
            wakes.extend(queued);
            wakes.extend(self.next_sweep());
        }
        wakes.into_iter().min()
    }

    /// Whether nothing runs, nothing is under way, and the last read of every handler's events found nothing to do now.
    /// Retries after failures and fires of schedules may still come; repeats because of a conflict count as work.
    pub fn is_idle(&self) -> bool {
        let settled = !self.ended.has_repeats(self.now) && self.runs.is_empty() && self.commits.is_quiet();
        let idle =
            |handler: &Handler| handler.queued() == 0 && (!handler.wants_claim() || handler.is_paused());
        let phase = matches!(self.session.phase(), Phase::Working | Phase::Stopped);
        settled && self.handlers.iter().all(idle) && self.requests.is_quiet() && phase
    }

    fn settle(&mut self, now: Now) {
        match self.session.phase() {
            Phase::Starting => self.retry_start(now),
            Phase::Working => {
                self.handlers.wake(now, !self.config.alone);
                self.heartbeat(now);
                self.fire_schedules(now);
                self.keep_elapsed(now);
                self.wake_due(now);
                self.give_stale_back(now);
                self.renew_leases(now);
                self.mark_runs(now);
                self.start_runs(now);
                self.refresh(now);
                self.wake_stranded(now);
                self.wake_sweep(now);
            }
            Phase::Stopping | Phase::Closing => {
                self.heartbeat(now);
                self.renew_leases(now);
                self.mark_runs(now);
            }
            Phase::Fresh | Phase::Stopped | Phase::Failed => return,
        }
        self.commit_next(now);
        self.finish_stop(now);
    }

    fn on_commit(&mut self, now: Now, token: Token, outcome: Outcome) {
        match self.requests.commit_ended(token) {
            Some(PendingCommit::Shared) => self.on_shared_commit(now, outcome),
            Some(PendingCommit::Handler(commit)) => self.on_handler_commit(now, *commit, outcome),
            Some(PendingCommit::Sweep) => self.on_sweep_committed(now, &outcome),
            Some(PendingCommit::DueMove(by, moves)) => self.on_due_moved(now, by, moves, &outcome),
            None => {}
        }
    }

    fn on_read(&mut self, now: Now, token: Token, result: Option<ReadResult>) {
        match self.requests.read_ended(token) {
            Some(PendingRead::Namespace(read)) => self.on_namespace_read(now, read, result),
            Some(PendingRead::FirstClaim(handler)) => self.on_first_claim(handler, result),
            Some(PendingRead::Stranded(handler)) => self.on_stranded_rows(now, handler, result),
            Some(PendingRead::Due(by, what)) => self.on_due_rows(now, by, what, result),
            Some(PendingRead::Sweep) => self.on_sweep_read(now, result),
            None => {}
        }
    }
}
