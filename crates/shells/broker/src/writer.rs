//! The writer: group commit (`millrace_shell::GroupCommit`) for the engine's batches and the rows of other parts, run by
//! one thread at a time (see `workers.rs`), and the writer's work besides commits.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use millrace_bus::Input;
use millrace_model::{Batch, Op};
use millrace_shell::{CommitLimits, CommitReceiver, Committed, GroupCommit, Housekeeping, Wrote};
use millrace_store::{Store, StoreError};
use parking_lot::Mutex;

use crate::backlog::{Backlog, BatchOrigin};
use crate::command::BrokerInbox;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::monitor;
use crate::settings::BrokerSettings;
use crate::watcher::{News, NewsWatcher};

pub(crate) struct CommitWriter {
    group: GroupCommit<Receiver>,
    /// Never contended: one thread at a time is the writer.
    maintenance: Mutex<Maintenance>,
}

/// The writer's work besides commits (housekeeping of the store, looking for commits of other processes).
struct Maintenance {
    housekeeping: Housekeeping,
    watcher: NewsWatcher,
}

/// Passes the outcomes of commits on.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) inbox: Arc<BrokerInbox>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) monitor: Arc<monitor::Control>,
}

impl CommitWriter {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        receiver: Receiver,
        settings: &BrokerSettings,
        watcher: NewsWatcher,
    ) -> CommitWriter {
        let limits =
            CommitLimits { batches_max: settings.commit_batches_max, bytes_max: settings.commit_bytes_max };
        let retry_pause_max = Duration::from_millis(settings.commit_retry_ms_max);
        let interval = Duration::from_millis(settings.maintain_interval_ms);
        let housekeeping = Housekeeping::new(settings.maintain_rows_max, interval);
        let queue = receiver.backlog.clone();
        CommitWriter {
            group: GroupCommit::new(store, queue, receiver, limits, retry_pause_max),
            maintenance: Mutex::new(Maintenance { housekeeping, watcher }),
        }
    }

    /// Commits as many queued batches as one commit may hold.
    pub(crate) fn commit_queued(&self) -> Wrote {
        let health = &self.group.receiver.health;
        let _writing = health.writing();
        self.group.receiver.monitor.writing();
        let wrote = self.group.commit_queued();
        if let Wrote::Done(_) = wrote {
            health.set_written();
            if self.maintenance.lock().housekeeping.committed() {
                self.group.receiver.inbox.want_maintenance();
            }
        }
        wrote
    }

    /// Does the maintenance that is due and returns when it is next due. `None` when nothing can be written any more.
    pub(crate) fn maintenance(&self) -> Option<Instant> {
        let mut maintenance = self.maintenance.lock();
        let Maintenance { housekeeping, watcher } = &mut *maintenance;
        let Receiver { health, metrics, backlog, .. } = &self.group.receiver;
        let _writing = health.writing();
        self.group.receiver.monitor.writing();
        self.group.guarded(|| {
            if watcher.is_due(Instant::now()) && self.poll_others(watcher) {
                housekeeping.committed();
            }
            if Instant::now() >= housekeeping.due_at() {
                let slice = housekeeping.run(&*self.group.store, || backlog.batches() > 0)?;
                metrics.maintained_rows.fetch_add(slice.rows as u64, Relaxed);
                if let Some(error) = slice.deferred_by.filter(|_| backlog.is_waiting()) {
                    // A commit has waited for this housekeeping and will meet the same error: its wait goes on.
                    health.set_retrying(&error);
                }
            }
            // News that the store tells from now on asks for maintenance by itself.
            Ok(watcher.poll_at().min(housekeeping.due_at()))
        })
    }

    /// Returns whether others have committed something. Called after this writer's own commits have been reported, so
    /// that only commits of others are news to the engine.
    fn poll_others(&self, watcher: &mut NewsWatcher) -> bool {
        match watcher.poll(&*self.group.store) {
            Ok(None) => false,
            Ok(Some(News { bounds, delayed })) => {
                self.group.receiver.inbox.complete_from_writer([Input::ForeignCommits { bounds, delayed }]);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "what others committed could not be read, it will be tried again");
                false
            }
        }
    }
}

impl CommitReceiver for Receiver {
    type Origin = BatchOrigin;

    fn committed(&self, commit: Committed<BatchOrigin>) {
        let events = commit.batches.iter().map(appends).sum();
        self.metrics.committed(commit.batches.len(), events, commit.took);
        if self.health.add_committed(commit.bytes as u64) {
            self.monitor.check();
        }
        // Row writers are answered before the inbox is locked: their tasks must not be woken under that lock.
        let mut outcomes = Vec::with_capacity(commit.origins.len());
        for (origin, outcome) in commit.origins.into_iter().zip(commit.outcomes) {
            match origin {
                BatchOrigin::Engine(token) => outcomes.push(Input::Committed { token, outcome }),
                BatchOrigin::RowWriter(reply) => reply.committed(&outcome),
            }
        }
        self.inbox.complete_from_writer(outcomes);
    }

    fn refused(&self, sender: BatchOrigin, error: StoreError) {
        match (sender, error) {
            (BatchOrigin::Engine(token), StoreError::TooLarge { bytes, .. }) => {
                self.inbox.complete_from_writer([Input::TooLarge { token, bytes }]);
            }
            (BatchOrigin::Engine(_), error) => {
                // The engine's batches are refused for their size only: any other reason is a failure.
                self.inbox.complete([Input::StorageFailed { reason: error.to_string() }]);
            }
            (BatchOrigin::RowWriter(reply), error) => reply.failed(&error),
        }
    }

    fn retrying(&self, error: &StoreError, attempt: u32) {
        self.health.set_retrying(error);
        self.metrics.commits_retried.fetch_add(1, Relaxed);
        if attempt == 0 {
            tracing::warn!(target: "millrace::store", %error, "a commit is kept and tried again");
        }
    }

    fn failed(&self, senders: Vec<BatchOrigin>, error: StoreError) {
        if matches!(error, StoreError::Deposed(_)) {
            self.health.set_deposed();
        }
        tell_row_writers(senders, &error);
        self.inbox.complete([Input::StorageFailed { reason: error.to_string() }]);
    }

    fn given_up(&self, origins: Vec<BatchOrigin>, error: StoreError) {
        tell_row_writers(origins, &error);
    }
}

/// Tells the row writers among the senders. The engine tells everybody who waits for it.
fn tell_row_writers(senders: Vec<BatchOrigin>, error: &StoreError) {
    for sender in senders {
        if let BatchOrigin::RowWriter(reply) = sender {
            reply.failed(error);
        }
    }
}

fn appends(batch: &Batch) -> usize {
    batch.ops.iter().filter(|op| matches!(op, Op::Append(_) | Op::Delay(_))).count()
}
