//! The worker's state, its public methods, and the dispatch of each input.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use millrace_model::{AgeGuard, DueBy, Elapsed, Mono, Now, Outcome, RunCounts, Timestamp, TopicKey};

use crate::claiming::handler::Handler;
use crate::claiming::stranded::StrandedClaims;
use crate::commits::batch_builder::Topics;
use crate::commits::shared_commit::{ActionQueue, SharedCommit};
use crate::interface::config::WorkerConfig;
use crate::interface::effect::Effect;
use crate::interface::error::{CommitError, SpecError};
use crate::interface::input::{Input, RunId, Token};
use crate::interface::settings::Limits;
use crate::interface::spec::{HandlerSpec, ScheduleSpec, WorkerIdentity};
use crate::lifecycle::start::{NamespaceRead, Startup};
use crate::prng::Prng;
use crate::running::run::{ActiveRun, HandlerCommit};
use crate::running::timeout::HangingRun;
use crate::schedules::schedule::Schedule;
use crate::upkeep::delayed::{DueMove, DueMover, DueRead};
use crate::upkeep::sweep::Sweep;

/// Largest metadata of a session, which is written with every heartbeat.
const METADATA_BYTES_MAX: usize = 1 << 20;

/// The worker of one session. Owned by one loop:
///
/// ```text
/// worker.handle(now, input)           // Input::Tick when the deadline has come, and once at the beginning
/// for effect in worker.drain() { ... }
/// wait until worker.next_deadline() or the next input
/// ```
#[derive(Debug)]
pub struct Worker {
    pub(crate) config: WorkerConfig,
    pub(crate) identity: WorkerIdentity,
    /// The handlers in the order they were given; `order` sorts them by priority, then by id.
    pub(crate) handlers: Vec<Handler>,
    pub(crate) order: Vec<usize>,
    /// The position in `order` that comes next.
    pub(crate) next_in_order: usize,
    pub(crate) schedules: Vec<Schedule>,
    pub(crate) topics: Topics,
    /// The rows that `topics` was read from: at most `ROWS_MAX` of `start.rs`.
    pub(crate) topic_rows: Vec<(String, Bytes)>,
    pub(crate) prng: Prng,
    pub(crate) effects: Vec<Effect>,
    pub(crate) phase: Phase,
    pub(crate) startup: Startup,
    pub(crate) actions: ActionQueue,
    pub(crate) commit: Option<SharedCommit>,
    pub(crate) runs: BTreeMap<RunId, ActiveRun>,
    pub(crate) run_ids: u64,
    /// Until this time some event waits to be run again because of a conflict, and this worker is not idle. By the wall
    /// clock, like the handler's own wake-up: both clocks are rounded down to milliseconds, and the monotonic one may
    /// reach the moment first, before the event can be claimed.
    pub(crate) repeats_until: Timestamp,
    /// The run that is or was last alone in the session (`suspects.rs`).
    pub(crate) isolated: Option<RunId>,
    /// Nothing is started or claimed, because an event runs alone or is about to.
    pub(crate) starts_held: bool,
    /// Runs that were cut off and have not returned yet.
    pub(crate) hanging: BTreeMap<RunId, HangingRun>,
    /// How runs ended since the session began, as far as that is durable.
    pub(crate) counts: RunCounts,
    /// When a stop no longer waits for runs.
    pub(crate) stop_at: Option<Mono>,
    pub(crate) pending: BTreeMap<Token, Pending>,
    tokens: u64,
    /// Runs begun in this iteration, and until when to pause before the next iteration.
    pub(crate) started: usize,
    pub(crate) paused_until: Option<Mono>,
    pub(crate) began: Timestamp,
    pub(crate) heartbeat_at: Mono,
    pub(crate) refresh_at: Mono,
    pub(crate) sweep_at: Mono,
    pub(crate) sweep: Option<Box<Sweep>>,
    pub(crate) stranded: StrandedClaims,
    pub(crate) mover: DueMover,
    /// The clock that delays are counted on; restored when the store's row of it is read.
    pub(crate) elapsed: Elapsed,
    pub(crate) ages: AgeGuard,
    /// The rows of the handlers are written. Before that, retention would remove events that they are about to claim.
    pub(crate) registered: bool,
    pub(crate) failed: Option<String>,
    now: Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Fresh,
    /// Reads what it must know before it can work (`start.rs`).
    Starting,
    Working,
    Stopping,
    /// The commit that says that the session has stopped is under way.
    Closing,
    Stopped,
    Failed,
}

#[derive(Debug)]
pub(crate) enum Pending {
    SharedCommit,
    HandlerCommit(Box<HandlerCommit>),
    NamespaceRead(NamespaceRead),
    /// Reads the first open claim of this handler, for its due time.
    FirstClaim(usize),
    /// Reads the claims of this handler that end too far ahead.
    Stranded(usize),
    SweepRead,
    SweepCommit,
    DueRead(DueBy, DueRead),
    DueMove(DueBy, Vec<DueMove>),
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
        let mut order: Vec<usize> = (0..handlers.len()).collect();
        order.sort_by_key(|at| (std::cmp::Reverse(handlers[*at].priority), handlers[*at].id.clone()));
        let handlers = handlers.into_iter().map(|spec| {
            let topic = TopicKey::new(&identity.namespace, &spec.topic);
            let limits = Limits::of(&config, &spec)?;
            Ok(Handler::new(spec, topic, limits, config.event_claim_limit))
        });
        let schedules = schedules.into_iter().map(|spec| Schedule::new(&identity.namespace, spec));
        Ok(Worker {
            handlers: handlers.collect::<Result<_, _>>()?,
            order,
            next_in_order: 0,
            schedules: schedules.collect::<Result<_, _>>()?,
            topics: Topics::default(),
            topic_rows: Vec::new(),
            prng: Prng::new(seed),
            effects: Vec::new(),
            phase: Phase::Fresh,
            startup: Startup::default(),
            actions: ActionQueue::default(),
            commit: None,
            runs: BTreeMap::new(),
            run_ids: 0,
            repeats_until: Timestamp(0),
            isolated: None,
            starts_held: false,
            hanging: BTreeMap::new(),
            counts: RunCounts::default(),
            stop_at: None,
            pending: BTreeMap::new(),
            tokens: 0,
            started: 0,
            paused_until: None,
            began: Timestamp(0),
            heartbeat_at: Mono(0),
            refresh_at: Mono(0),
            sweep_at: Mono(0),
            sweep: None,
            stranded: StrandedClaims::default(),
            mover: DueMover::default(),
            elapsed: Elapsed::default(),
            ages: AgeGuard::new(config.clock_settle_ms),
            registered: false,
            failed: None,
            now: Now::default(),
            config,
            identity,
        })
    }

    /// Handles one input. Effects accumulate until they are drained.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.now = now;
        self.ages.tell(now);
        if self.phase == Phase::Fresh && !matches!(input, Input::Failed { .. }) {
            self.start_up(now);
        }
        self.cut_late_runs(now);
        match input {
            Input::News { topics: Some(topics) } => topics.iter().for_each(|topic| self.on_new_events(topic)),
            Input::News { topics: None } => {
                self.handlers.iter_mut().for_each(|handler| handler.wants_claim = true);
            }
            Input::Delayed => self.on_delayed(),
            Input::Committed { token, outcome } => self.committed(now, token, outcome),
            Input::TooLarge { token, bytes, limit } => self.too_large(now, token, bytes, limit),
            Input::Failed { reason } => self.storage_failed(reason),
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
    }

    pub fn drain(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Returns when [`Input::Tick`] must be given at the latest; `None` = not before the next input.
    pub fn next_deadline(&self) -> Option<Mono> {
        let now = self.now;
        match self.phase {
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
        wakes.extend(polls.then_some(self.heartbeat_at));
        wakes.extend(self.actions.commit_at().filter(|_| self.commit.is_none()));
        if self.config.lease_renewal {
            let held = self.runs.values().filter(|run| run.wants_lease(now.wall));
            let lease_ms = |at: usize| self.handlers[at].limits.lease_ms;
            wakes.extend(held.map(|run| stale_at(lease_ms(run.handler), run.ticket.row.due)));
        }
        wakes.extend(self.next_mark(now));
        wakes.extend(self.next_cut(now));
        if self.phase == Phase::Working {
            wakes.extend(self.next_suspect_deadline(now));
            wakes.extend(polls.then_some(self.refresh_at));
            wakes.extend(self.stranded.wake);
            wakes.extend(self.paused_until);
            wakes.extend(self.next_fire(now));
            wakes.extend(self.next_due(now));
            wakes.extend(self.handlers.iter().filter_map(|handler| handler.next_wake(now, polls)));
            wakes.extend(self.handlers.iter().filter_map(|handler| handler.rate_wake(now)));
            let queued = self.handlers.iter().flat_map(|handler| {
                handler.fronts().map(|claimed| stale_at(handler.limits.lease_ms, claimed.ticket.row.due))
            });
            wakes.extend(queued);
            wakes.extend(self.may_sweep().then_some(self.sweep_at));
        }
        wakes.into_iter().min()
    }

    /// Whether nothing runs, nothing is under way, and the last read of every handler's events found nothing to do now.
    /// Retries after failures and fires of schedules may still come; repeats because of a conflict count as work.
    pub fn is_idle(&self) -> bool {
        let settled = self.repeats_until <= self.now.wall
            && self.runs.is_empty()
            && self.commit.is_none()
            && self.actions.is_empty();
        let quiet = self
            .handlers
            .iter()
            .all(|handler| handler.queued() == 0 && (!handler.wants_claim || handler.is_paused()));
        settled && quiet && self.pending.is_empty() && matches!(self.phase, Phase::Working | Phase::Stopped)
    }

    fn settle(&mut self, now: Now) {
        match self.phase {
            Phase::Starting => self.retry_start(now),
            Phase::Working => {
                let polls = !self.config.alone;
                self.handlers.iter_mut().for_each(|handler| handler.wake(now, polls));
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

    pub(crate) fn token(&mut self, pending: Pending) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        self.pending.insert(token, pending);
        token
    }

    fn committed(&mut self, now: Now, token: Token, outcome: Outcome) {
        match self.pending.remove(&token) {
            Some(Pending::SharedCommit) => self.on_shared_commit(now, outcome),
            Some(Pending::HandlerCommit(under_way)) => self.on_handler_commit(now, *under_way, outcome),
            Some(Pending::SweepCommit) => self.sweep_committed(now, &outcome),
            Some(Pending::DueMove(by, moves)) => self.due_moved(now, by, moves, &outcome),
            // The token belongs to a read or is unknown: not a commit of this worker.
            Some(other) => {
                self.pending.insert(token, other);
            }
            None => {}
        }
    }

    fn storage_failed(&mut self, reason: String) {
        if matches!(self.phase, Phase::Failed | Phase::Stopped) {
            return;
        }
        for pending in std::mem::take(&mut self.pending).into_values() {
            if let Pending::HandlerCommit(under_way) = pending {
                let result = Err(CommitError::StorageFailed { reason: reason.clone() });
                self.effects.push(Effect::Answer { run: under_way.run(), result });
            }
        }
        self.phase = Phase::Failed;
        self.commit = None;
        self.handlers.iter_mut().for_each(|handler| drop(handler.unqueue(|_| true)));
        self.failed = Some(reason.clone());
        self.effects.push(Effect::Stopped { failed: Some(reason) });
    }
}

fn check(
    config: &WorkerConfig,
    identity: &WorkerIdentity,
    handlers: &[HandlerSpec],
    schedules: &[ScheduleSpec],
) -> Result<(), SpecError> {
    let numbers = [
        ("event_poll_interval_ms", config.event_poll_interval_ms),
        ("event_claim_limit", config.event_claim_limit as u64),
        ("max_events_per_iteration", config.max_events_per_iteration as u64),
        ("event_claim_lease_ms", config.event_claim_lease_ms),
        ("session_heartbeat_interval_ms", config.session_heartbeat_interval_ms),
        ("session_ttl_ms", config.session_ttl_ms),
        ("event_max_attempts", u64::from(config.event_max_attempts)),
        ("max_batch_size", config.max_batch_size as u64),
        ("handler_concurrency", config.handler_concurrency as u64),
        ("refresh_interval_ms", config.refresh_interval_ms),
        ("retention_rows_max", config.retention_rows_max as u64),
    ];
    if let Some((name, _)) = numbers.into_iter().find(|(_, value)| *value == 0) {
        return Err(SpecError::Zero { name });
    }
    if config.handler_timeout_ms == Some(0) {
        return Err(SpecError::Zero { name: "handler_timeout_ms" });
    }
    let bytes = identity.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > METADATA_BYTES_MAX {
        return Err(SpecError::MetadataTooLarge { bytes, limit: METADATA_BYTES_MAX });
    }
    let mut known = BTreeSet::new();
    if let Some(twice) = handlers.iter().find(|handler| !known.insert(handler.id.as_str())) {
        return Err(SpecError::DoubledHandler(twice.id.as_str().to_owned()));
    }
    let mut known = BTreeSet::new();
    if let Some(twice) = schedules.iter().find(|schedule| !known.insert(schedule.name.as_str())) {
        return Err(SpecError::DoubledSchedule(twice.name.clone()));
    }
    Ok(())
}
