//! Invariants that hold between two inputs. The worker keeps some facts twice, because one of them is cheaper to ask:
//! here both are compared.
//!
//! Checked after every input in debug builds, so tests and the simulator run it all the time.

use std::collections::BTreeMap;

use crate::commits::action::FollowUp;
use crate::interface::input::RunId;
use crate::lifecycle::session::Phase;
use crate::requests::{PendingCommit, PendingRead};
use crate::worker::Worker;

/// With more actions than this, those that change runs and schedules are not counted: every input would read them all.
const ACTIONS_MAX: usize = 2048;

impl Worker {
    /// Compares what the worker keeps twice. The cost grows with runs, handlers and what is under way.
    ///
    /// # Panics
    ///
    /// If something differs, which is a bug of the engine.
    pub fn check_invariants(&self) {
        // Nothing is kept in step any more after the store has failed.
        if self.session.phase() == Phase::Failed {
            return;
        }
        self.check_handlers();
        self.check_commits();
        self.check_upkeep();
        if self.commits.actions().take(ACTIONS_MAX + 1).count() <= ACTIONS_MAX {
            self.check_runs();
            self.check_schedules();
        }
    }

    fn check_handlers(&self) {
        let mut running = vec![0; self.handlers.indices().len()];
        self.runs.values().for_each(|run| running[run.handler()] += 1);
        for (handler, running) in self.handlers.iter().zip(running) {
            let (id, counted) = (handler.id(), handler.running());
            assert_eq!(counted, running, "{id} counts {counted} runs, but has {running}");
            assert!(handler.is_within_limits(), "{id} holds more events than its limits allow: {handler:?}");
        }
        let (runs, slots) = (self.runs.len(), self.config.handler_concurrency);
        assert!(runs <= slots, "{runs} runs go on in {slots} slots");
        let hanging = self.runs.iter().find(|(id, _)| self.hanging.contains(*id));
        assert!(hanging.is_none(), "a run goes on and hangs: {hanging:?}");
    }

    fn check_commits(&self) {
        let pending = |shared: &&PendingCommit| matches!(shared, PendingCommit::Shared);
        let pending = self.requests.pending_commits().filter(pending).count();
        let under_way = usize::from(self.commits.is_under_way());
        assert_eq!(pending, under_way, "{pending} shared commits are pending, {under_way} under way");
        let queue = self.commits.queue();
        let due = queue.commit_at().is_some();
        assert_eq!(due, !queue.is_empty(), "the time of the next commit does not fit the queued actions");
    }

    /// A run is busy exactly while one commit or action changes the row of its claim.
    fn check_runs(&self) {
        let of_handlers = self.requests.pending_commits().filter_map(|pending| match pending {
            PendingCommit::Handler(commit) => Some(commit.run()),
            _ => None,
        });
        let of_actions = self.commits.actions().filter_map(|action| match &action.follow_up {
            FollowUp::Renewed { run, .. } | FollowUp::Marked { run, .. } => Some(*run),
            _ => None,
        });
        let mut changes: BTreeMap<RunId, usize> = BTreeMap::new();
        of_handlers.chain(of_actions).for_each(|run| *changes.entry(run).or_default() += 1);
        for (id, run) in self.runs.iter() {
            let changes = changes.remove(&id).unwrap_or(0);
            let expected = usize::from(run.is_busy());
            assert_eq!(changes, expected, "{id:?} is changed by {changes} writes: {run:?}");
            let waits = run.has_deferred() || run.timer().is_cut() || !run.is_begun();
            assert!(
                !waits || run.is_busy(),
                "{id:?} waits for a change of its row that is not made: {run:?}"
            );
        }
        assert!(changes.is_empty(), "rows of runs that have ended are being changed: {changes:?}");
    }

    /// A schedule is busy exactly while one action writes its row.
    fn check_schedules(&self) {
        let mut writes = vec![0; self.schedules.len()];
        for action in self.commits.actions() {
            if let FollowUp::Fired { schedule, .. } = &action.follow_up {
                writes[*schedule] += 1;
            }
        }
        for (schedule, writes) in self.schedules.iter().zip(writes) {
            let (name, expected) = (schedule.name(), usize::from(schedule.is_busy()));
            assert_eq!(writes, expected, "the row of schedule {name:?} is written by {writes} actions");
        }
    }

    fn check_upkeep(&self) {
        let commits = |matches: fn(&PendingCommit) -> bool| {
            self.requests.pending_commits().filter(|pending| matches(pending)).count()
        };
        let reads = |matches: fn(&PendingRead) -> bool| {
            self.requests.pending_reads().filter(|pending| matches(pending)).count()
        };
        let due = commits(|pending| matches!(pending, PendingCommit::DueMove(..)))
            + reads(|pending| matches!(pending, PendingRead::Due(..)));
        assert_eq!(due, usize::from(self.mover.is_busy()), "{due} reads and moves of delayed events");
        let sweeps = commits(|pending| matches!(pending, PendingCommit::Sweep))
            + reads(|pending| matches!(pending, PendingRead::Sweep));
        assert_eq!(sweeps, usize::from(self.retention.is_sweeping()), "{sweeps} steps of retention");
        if self.session.is_starting() {
            let starting = reads(|pending| matches!(pending, PendingRead::Namespace(_)));
            let known = self.startup.under_way();
            assert_eq!(starting, known, "{starting} reads of the start are pending, but {known} are counted");
        }
    }
}
