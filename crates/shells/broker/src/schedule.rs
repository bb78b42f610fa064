//! Decides which job a thread does next, whether an edge may do a job inline, and whether a sleeping thread must be
//! woken: a state machine without locks, clocks and queues.
//!
//! The inbox (`inbox.rs`) keeps a `Schedule` under its lock. The inbox reports what happened ([`Happened`]), passes the number
//! of waiting inputs and batches ([`Load`]) and the time, and does what it is told. So every rule of this file can be
//! tested as data, and `tests/schedule_explorer.rs` visits every state that a small broker can reach.
//!
//! There are two jobs, each done by one thread at a time: to decide (run the engine over a turn of inputs) and to write
//! (commit, or do maintenance). A store that has failed, and an engine that has panicked, never report the end of their
//! job: it stays taken, so no thread does it again.

use std::time::{Duration, Instant};

/// Inputs of a short turn, at most. A short turn runs before a commit that waits, because its result then joins the
/// commit. Before a longer turn the commit is started first, and the other thread is woken for the turn. A short turn
/// may also be run by the edge that sent a request.
const SHORT_TURN: usize = 16;
/// Turns in a row that may run before a commit that waits: requests that come while answers are sent still join that
/// commit.
const DEFERRED_COMMITS_MAX: u32 = 3;

/// After a commit that took longer, edges leave commits to the workers until one was shorter: the connection that an edge
/// serves waits with it.
const SHORT_COMMIT: Duration = Duration::from_millis(20);
/// Gatherings in a row that nobody joins, after which edges decide at once again: a lone publisher gains nothing from
/// waiting for others.
const LONELY_GATHERINGS_MAX: u32 = 16;

/// The settings of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ScheduleLimits {
    /// Threads of the workers.
    pub(crate) threads: usize,
    /// No thread sleeps longer than this.
    pub(crate) sleep_max: Duration,
    /// Whether an edge may commit a lone batch.
    pub(crate) inline_commits: bool,
}

/// The work that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) requests: usize,
    pub(crate) completions: usize,
    /// Batches that no commit has taken yet.
    pub(crate) batches: usize,
    /// False while the bounds of the backlog are exceeded: a turn then takes no requests.
    pub(crate) accepts_requests: bool,
}

impl Load {
    fn has_inputs(&self) -> bool {
        (self.accepts_requests && self.requests > 0) || self.completions > 0
    }

    fn is_long(&self) -> bool {
        self.requests.max(self.completions) > SHORT_TURN
    }
}

/// An event that changes the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// Requests or completions were added.
    Arrived,
    /// A turn is over; the engine must run again at `next_at` even if nothing arrives.
    Decided { next_at: Instant },
    /// A commit is over.
    Committed { took: Duration },
    /// An attempt to commit wrote nothing. The next attempt is due at `retry_at`; maintenance goes on meanwhile, because it may
    /// free space.
    WroteNothing { retry_at: Instant },
    /// Maintenance is to be done now: the store has told of commits of other processes.
    MaintenanceWanted,
    /// Maintenance is over; it is next due at `next_at`, or at once if it was wanted meanwhile.
    Maintained { next_at: Instant },
    /// A thread is awake that was told to sleep until `until`.
    Woke { until: Instant },
    /// An edge has finished its jobs of the workers.
    InlineFinished,
    /// An edge that was to look again after gathering will not.
    GatheringDropped,
    /// Nothing more is accepted.
    Ended,
}

/// The next step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Do(Job),
    /// Sleep, then report [`Happened::Woke`] with the same time, however the sleep ended.
    SleepUntil(Instant),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    Decide,
    Commit,
    /// The writer's work besides commits.
    Maintenance,
    /// Drop the owner.
    Retire,
    End,
}

/// The thread that sees to requests that an edge has just added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handover {
    /// The edge runs their turn now, and must report [`Happened::InlineFinished`] when it has finished everything.
    Turn,
    /// The edge lets the other tasks of its thread go on, then asks [`Schedule::end_gathering`]. If it cannot, it must
    /// report [`Happened::GatheringDropped`].
    Gather,
    /// Another thread, which must be woken if there is a reason.
    Other(Option<Wake>),
}

/// Why a sleeping thread must be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wake {
    /// Inputs have arrived.
    Arrival,
    /// Inputs are left, and the thread that leaves them does something else.
    Turn,
    /// Batches are left, and nobody commits them.
    Commit,
    /// Every sleeping thread would wake too late.
    Alarm,
    /// The last edge has finished, which the end has waited for.
    LastInline,
    End,
}

impl Wake {
    /// Returns whether all sleeping threads are woken, or one.
    pub(crate) fn is_for_all(self) -> bool {
        matches!(self, Wake::LastInline | Wake::End)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Schedule {
    limits: ScheduleLimits,
    phase: Phase,
    deciding: bool,
    /// A thread is committing or doing maintenance.
    writing: bool,
    /// Turns that were run before a commit that waits.
    deferred_commits: u32,
    last_commit_was_long: bool,
    /// The last attempt to commit wrote nothing: nothing is committed before this time.
    commit_at: Option<Instant>,
    /// When the engine must run again even if nothing happens.
    decide_at: Instant,
    /// When the writer has maintenance to do. After a commit, maintenance comes before the next one
    /// (`maintenance_next`), or a busy writer would never do it.
    maintenance_at: Instant,
    maintenance_next: bool,
    /// Maintenance was wanted since it last began.
    maintenance_wanted: bool,
    /// When each sleeping thread of the workers wakes by itself.
    idle_until: Vec<Instant>,
    /// Edges that are doing jobs of the workers: the workers do not end before they have finished.
    inline_turns: usize,
    /// `Some` while an edge that has added requests lets the other tasks of its thread go on and then looks again. Nobody is
    /// woken for requests that come until then, if there are not too many. True once another edge has added some.
    gathering: Option<bool>,
    /// Gatherings that may still be begun although nobody joins them. Zero if a publisher was alone for so long.
    gatherings_left: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Running,
    Ended,
    /// A thread drops the owner, or has done so.
    Retired,
}

impl Schedule {
    pub(crate) fn new(limits: ScheduleLimits, now: Instant) -> Schedule {
        Schedule {
            idle_until: Vec::with_capacity(limits.threads),
            limits,
            phase: Phase::Running,
            deciding: false,
            writing: false,
            deferred_commits: 0,
            commit_at: None,
            last_commit_was_long: false,
            // The engine may have work from before the restart.
            decide_at: now,
            maintenance_at: now,
            maintenance_next: false,
            maintenance_wanted: false,
            inline_turns: 0,
            gathering: None,
            gatherings_left: 0,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.phase != Phase::Running
    }

    /// Takes note of an event and returns why a thread must be woken for it, if so.
    pub(crate) fn report(&mut self, happened: Happened) -> Option<Wake> {
        match happened {
            Happened::Arrived => return self.wake_for_arrival(),
            Happened::Decided { next_at } => {
                self.deciding = false;
                self.decide_at = next_at;
            }
            Happened::Committed { took } => {
                self.writing = false;
                self.last_commit_was_long = took > SHORT_COMMIT;
                self.commit_at = None;
                self.maintenance_next = true;
            }
            Happened::WroteNothing { retry_at } => {
                self.writing = false;
                self.commit_at = Some(retry_at);
            }
            // A thread that decides or writes looks again afterwards.
            Happened::MaintenanceWanted => {
                self.maintenance_wanted = true;
                let sleeps = !self.idle_until.is_empty() && !self.has_ended();
                return (sleeps && !self.deciding && !self.writing).then_some(Wake::Alarm);
            }
            Happened::Maintained { next_at } => {
                self.writing = false;
                self.maintenance_at = next_at;
                self.maintenance_next = false;
            }
            Happened::Woke { until } => {
                // If two threads sleep until the same time, it does not matter which one is removed.
                if let Some(own) = self.idle_until.iter().position(|idle_until| *idle_until == until) {
                    self.idle_until.swap_remove(own);
                }
            }
            Happened::InlineFinished => {
                self.inline_turns -= 1;
                return (self.has_ended() && self.inline_turns == 0).then_some(Wake::LastInline);
            }
            Happened::GatheringDropped => {
                self.gathering = None;
                return self.wake_for_arrival();
            }
            Happened::Ended => {
                if self.phase == Phase::Running {
                    self.phase = Phase::Ended;
                }
                return Some(Wake::End);
            }
        }
        None
    }

    /// Returns the next step of a thread. After a job, ask [`Schedule::wake_for_rest`] with what is left.
    pub(crate) fn next(&mut self, load: &Load, now: Instant) -> Step {
        if self.has_ended() {
            return self.next_after_the_end(load, now);
        }
        let may_commit = self.commit_at.is_none_or(|at| now >= at);
        let can_commit = !self.writing && load.batches > 0 && may_commit;
        let turn = load.has_inputs() || now >= self.decide_at;
        let commit_first = can_commit && (self.deferred_commits >= DEFERRED_COMMITS_MAX || load.is_long());
        if !self.deciding && turn && !commit_first {
            self.deferred_commits = if can_commit { self.deferred_commits + 1 } else { 0 };
            self.deciding = true;
            return Step::Do(Job::Decide);
        }
        let maintenance = !self.writing && (self.maintenance_wanted || now >= self.maintenance_at);
        if maintenance && (self.maintenance_next || !can_commit) {
            self.writing = true;
            self.maintenance_wanted = false;
            return Step::Do(Job::Maintenance);
        }
        if can_commit {
            self.writing = true;
            self.deferred_commits = 0;
            return Step::Do(Job::Commit);
        }
        let mut until = now + self.limits.sleep_max;
        if !self.deciding {
            until = until.min(self.decide_at);
        }
        if !self.writing {
            until = until.min(self.maintenance_at).min(self.commit_at.unwrap_or(until));
        }
        self.sleep(until)
    }

    /// There is no pause before a retry any more: one last attempt to commit is made.
    fn next_after_the_end(&mut self, load: &Load, now: Instant) -> Step {
        if self.inline_turns > 0 {
            // Woken by the last of them.
            return self.sleep(now + self.limits.sleep_max);
        }
        if !self.deciding && self.phase == Phase::Ended {
            self.phase = Phase::Retired;
            return Step::Do(Job::Retire);
        }
        if !self.writing && load.batches > 0 {
            self.writing = true;
            return Step::Do(Job::Commit);
        }
        Step::Do(Job::End)
    }

    fn sleep(&mut self, until: Instant) -> Step {
        self.idle_until.push(until);
        Step::SleepUntil(until)
    }

    /// Says who sees to requests that an edge has just added. If no thread is deciding and the turn is short, the edge
    /// does: waking a thread of the workers would cost more than the turn. While several edges are busy, the first one
    /// gathers, if it can: one turn and one commit for the requests of several connections cost less than one for each.
    pub(crate) fn hand_over(&mut self, load: &Load, can_gather: bool) -> Handover {
        if self.deciding || self.writing || self.gathering.is_some() {
            self.gatherings_left = LONELY_GATHERINGS_MAX;
        }
        let gathers = self.gathering.is_some() || (can_gather && self.gatherings_left > 0);
        if gathers && !self.deciding && !self.has_ended() && !load.is_long() && load.accepts_requests {
            let is_first = self.gathering.is_none();
            self.gathering = Some(!is_first);
            return if is_first { Handover::Gather } else { Handover::Other(None) };
        }
        match self.begin_inline_turn(load) {
            true => Handover::Turn,
            false => Handover::Other(self.wake_for_arrival()),
        }
    }

    /// An edge that has gathered looks again: returns whether it runs the turn over what has come. If not, ask
    /// [`Schedule::wake_for_rest`].
    pub(crate) fn end_gathering(&mut self, load: &Load) -> bool {
        if self.gathering.take() == Some(false) {
            self.gatherings_left = self.gatherings_left.saturating_sub(1);
        }
        self.begin_inline_turn(load)
    }

    fn begin_inline_turn(&mut self, load: &Load) -> bool {
        let begins = self.next_inline_turn(load);
        self.inline_turns += usize::from(begins);
        begins
    }

    /// A thread that is deciding looks again afterwards.
    fn wake_for_arrival(&self) -> Option<Wake> {
        (!self.idle_until.is_empty() && !self.deciding).then_some(Wake::Arrival)
    }

    /// Whether an edge that has just run a turn or a commit also runs the turn over what came meanwhile.
    pub(crate) fn next_inline_turn(&mut self, load: &Load) -> bool {
        let waits = load.requests > 0 || load.completions > 0;
        let begins = !self.deciding && !self.has_ended() && waits && !load.is_long() && load.accepts_requests;
        self.deciding |= begins;
        begins
    }

    /// Whether an edge that has run a turn is to commit as well: only if no other thread is awake, there is exactly one
    /// batch, and the disk was quick the last time. A lone publisher gets its answer without any other thread, and with several publishers the workers,
    /// once awake, gather their batches. If not, ask [`Schedule::wake_for_rest`].
    pub(crate) fn begin_inline_commit(&mut self, load: &Load) -> bool {
        let alone =
            self.idle_until.len() == self.limits.threads && self.inline_turns == 1 && !self.has_ended();
        let idle = !self.deciding && load.requests == 0 && load.completions == 0;
        let can_write = !self.writing && self.commit_at.is_none() && !self.last_commit_was_long;
        let begins = self.limits.inline_commits && alone && idle && can_write && load.batches == 1;
        self.writing |= begins;
        begins
    }

    /// Returns why a sleeping thread must be woken for what is left, if so: there is a job for it, or it would wake too
    /// late. Not for maintenance while a thread decides, because that thread looks for maintenance afterwards: waking a
    /// thread only to set another alarm costs as much as a turn. Not for a commit that was deferred for a turn, because
    /// the thread that runs the turn commits afterwards.
    pub(crate) fn wake_for_rest(&self, load: &Load) -> Option<Wake> {
        let first = *self.idle_until.iter().min()?;
        if self.has_ended() {
            // Every sleeping thread waits for the last edge.
            return None;
        }
        // An edge that gathers looks at requests by itself.
        let gathered = self.gathering.is_some() && load.completions == 0 && !load.is_long();
        if !self.deciding && load.has_inputs() && !gathered {
            return Some(Wake::Turn);
        }
        if !self.writing && self.deferred_commits == 0 && self.commit_at.is_none() && load.batches > 0 {
            return Some(Wake::Commit);
        }
        let write_at = self.maintenance_at.min(self.commit_at.unwrap_or(self.maintenance_at));
        let write_late = !self.writing && (self.maintenance_wanted || write_at < first);
        let late = !self.deciding && (self.decide_at < first || write_late);
        late.then_some(Wake::Alarm)
    }
}
