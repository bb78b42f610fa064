//! The writer: adaptive group commit, run by one thread at a time (see `workers.rs`).
//!
//! The writer takes every batch in the queue, commits them with one sync, reports the outcomes, and looks again. While
//! a sync is under way the next batches gather, so the busier the writer is the more each sync carries; an idle writer
//! commits a single batch at once, without waiting for more.
//!
//! A batch larger than a store must accept is refused alone, in its turn. A commit that wrote nothing (the disk is
//! full, or another program has locked the store) goes back to the head of the queue and is retried after a pause;
//! nobody is answered meanwhile. Every other failure ends the writing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millrace_bus::{Input, Token};
use millrace_model::{BATCH_BYTES_MAX, Batch, Op};
use millrace_store::{Store, StoreError};

use crate::health::Health;
use crate::inbox::Inbox;
use crate::metrics::Metrics;
use crate::monitor;
use crate::settings::BrokerSettings;
use crate::watcher::{News, Watcher};

/// While batches wait, housekeeping pauses this many times as long as its last slice took: it gets a fifth of the
/// writer's time, enough not to fall behind for good, and a batch waits for one slice at most.
const BUSY_PAUSE: u32 = 4;
/// Pause before the first retry of a commit that wrote nothing. The pause doubles with each attempt.
const RETRY_MS_MIN: u64 = 20;

/// Batches on their way to the disk. Bounded by the owner, which takes no requests while the bounds are exceeded.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    queue: Mutex<Queue>,
    /// Batches in the queue.
    waiting: AtomicUsize,
    /// Batches in the queue and in the commit under way; read without the lock.
    batches: AtomicUsize,
    bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Token, Batch, usize)>,
    ended: bool,
}

impl Backlog {
    /// Adds the commits of one turn. After the end they are dropped and their outcome is never reported.
    pub(crate) fn push(&self, commits: &mut Vec<(Token, Batch)>) {
        if commits.is_empty() {
            return;
        }
        let mut queue = self.lock();
        if queue.ended {
            commits.clear();
            return;
        }
        for (token, batch) in commits.drain(..) {
            let bytes = batch.bytes();
            self.batches.fetch_add(1, Relaxed);
            self.bytes.fetch_add(bytes, Relaxed);
            queue.waiting.push_back((token, batch, bytes));
        }
        self.waiting.store(queue.waiting.len(), Relaxed);
    }

    /// Whether there is something to commit. Exact for a thread that holds the inbox's lock: threads that add or take
    /// batches acquire that lock afterwards.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting() > 0
    }

    /// Number of batches in the queue. Exact like [`Backlog::is_waiting`].
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// How many requests the next turn may take: none while the bounds are exceeded.
    pub(crate) fn requests_max(&self, settings: &BrokerSettings) -> usize {
        let full =
            self.batches() >= settings.backlog_batches_max || self.bytes() >= settings.backlog_bytes_max;
        if full { 0 } else { settings.turn_requests_max }
    }

    pub(crate) fn batches(&self) -> usize {
        self.batches.load(Relaxed)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Accepts no more batches; those in the queue are still committed.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
    }

    /// Puts batches of a commit that wrote nothing back at the head of the queue. Returns false after the end: then
    /// nobody waits for them.
    fn put_back(&self, tokens: &mut Vec<Token>, batches: &mut Vec<Batch>) -> bool {
        let mut queue = self.lock();
        for (token, batch) in tokens.drain(..).zip(batches.drain(..)).rev() {
            let bytes = batch.bytes();
            queue.waiting.push_front((token, batch, bytes));
        }
        self.waiting.store(queue.waiting.len(), Relaxed);
        !queue.ended
    }

    fn abandon(&self) {
        let mut queue = self.lock();
        queue.ended = true;
        queue.waiting.clear();
        self.waiting.store(0, Relaxed);
        self.batches.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
    }

    /// The queue is consistent whenever the lock is released, so poisoning by a panic can be ignored.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Writer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) settings: BrokerSettings,
    /// Never contended: one thread at a time is the writer.
    pub(crate) maintenance: Mutex<Maintenance>,
    /// Attempts of the commit at the head of the queue that wrote nothing.
    pub(crate) attempts: AtomicU32,
    pub(crate) monitor: Arc<monitor::Control>,
}

/// How an attempt to commit ended.
pub(crate) enum Wrote {
    Done,
    /// Nothing was written. The batches wait at the head of the queue until this time.
    Again(Instant),
    /// Nothing can be written any more.
    Never,
}

/// The writer's work besides commits (housekeeping of the store, looking for commits of other processes), and when it
/// is due.
pub(crate) struct Maintenance {
    maintain_at: Instant,
    watcher: Watcher,
    /// The last slice of housekeeping could not be written.
    failing: bool,
}

impl Maintenance {
    pub(crate) fn new(settings: &BrokerSettings, watcher: Watcher) -> Maintenance {
        let interval = Duration::from_millis(settings.maintain_interval_ms);
        Maintenance { maintain_at: Instant::now() + interval, watcher, failing: false }
    }
}

/// The next work in the queue.
enum Next {
    /// Commit the batches taken. Has their bytes, as the backlog counts them.
    Commit(usize),
    /// Refuse the first batch: it is larger than any store must accept.
    Refuse(Token, usize),
}

impl Writer {
    /// Commits as many queued batches as one commit may hold.
    pub(crate) fn commit_queued(&self) -> Wrote {
        let (mut tokens, mut batches) = (Vec::new(), Vec::new());
        let committed = self.guarded(|writer| {
            match writer.take(&mut tokens, &mut batches) {
                Next::Commit(_) if batches.is_empty() => {}
                Next::Commit(bytes) => match writer.commit(&mut tokens, &mut batches, bytes) {
                    Err(error) if error.may_be_retried() => {
                        writer.health.set_retrying(&error);
                        return Ok(Some(error));
                    }
                    committed => committed?,
                },
                Next::Refuse(token, bytes) => writer.refuse(token, bytes, bytes),
            }
            Ok(None)
        });
        match committed {
            None => Wrote::Never,
            Some(None) => {
                self.attempts.store(0, Relaxed);
                self.health.set_written();
                Wrote::Done
            }
            Some(Some(error)) => self.put_back(&mut tokens, &mut batches, &error),
        }
    }

    /// Keeps the batches of a commit that wrote nothing, unless the broker has ended.
    fn put_back(&self, tokens: &mut Vec<Token>, batches: &mut Vec<Batch>, error: &StoreError) -> Wrote {
        self.metrics.commits_retried.fetch_add(1, Relaxed);
        if !self.backlog.put_back(tokens, batches) {
            let batches = self.backlog.batches();
            tracing::error!(target: "millrace::store", %error, batches, "not written before the end; nobody was told that it was");
            self.backlog.abandon();
            return Wrote::Done;
        }
        let attempt = self.attempts.fetch_add(1, Relaxed);
        if attempt == 0 {
            tracing::warn!(target: "millrace::store", %error, "a commit is kept and tried again");
        }
        let pause =
            RETRY_MS_MIN.checked_shl(attempt).unwrap_or(u64::MAX).min(self.settings.commit_retry_ms_max);
        Wrote::Again(Instant::now() + Duration::from_millis(pause))
    }

    /// Does the maintenance that is due and returns when it is next due. `None` when nothing can be written any more.
    pub(crate) fn maintenance(&self) -> Option<Instant> {
        let mut maintenance = self.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        let Maintenance { maintain_at, watcher, failing } = &mut *maintenance;
        self.guarded(|writer| {
            if Instant::now() >= watcher.look_at {
                writer.look_around(watcher);
            }
            let started = Instant::now();
            if started >= *maintain_at {
                let pause = match (writer.maintain(failing)?, writer.backlog.batches()) {
                    (false, _) => Duration::from_millis(writer.settings.maintain_interval_ms),
                    (true, 0) => Duration::ZERO,
                    (true, _) => started.elapsed() * BUSY_PAUSE,
                };
                *maintain_at = Instant::now() + pause;
            }
            Ok(watcher.look_at.min(*maintain_at))
        })
    }

    /// Runs work on the store. If it fails or panics, the engine is told that nothing is written any more.
    fn guarded<T>(&self, work: impl FnOnce(&Writer) -> Result<T, StoreError>) -> Option<T> {
        let mut report = Report { writer: self, reason: "the writer ended unexpectedly".to_owned() };
        let _writing = self.health.writing();
        let (reason, done) = match work(self) {
            Ok(done) => (String::new(), Some(done)),
            Err(error) => (error.to_string(), None),
        };
        report.reason = reason;
        done
    }

    fn take(&self, tokens: &mut Vec<Token>, batches: &mut Vec<Batch>) -> Next {
        let mut queue = self.backlog.lock();
        let mut total = 0;
        while let Some((token, _, bytes)) = queue.waiting.front() {
            if *bytes > BATCH_BYTES_MAX {
                if !batches.is_empty() {
                    break;
                }
                let refused = Next::Refuse(*token, *bytes);
                queue.waiting.pop_front();
                self.backlog.waiting.store(queue.waiting.len(), Relaxed);
                return refused;
            }
            let full = batches.len() >= self.settings.commit_batches_max
                || total + bytes > self.settings.commit_bytes_max;
            if full && !batches.is_empty() {
                break;
            }
            let Some((token, batch, bytes)) = queue.waiting.pop_front() else { break };
            total += bytes;
            tokens.push(token);
            batches.push(batch);
        }
        self.backlog.waiting.store(queue.waiting.len(), Relaxed);
        Next::Commit(total)
    }

    fn commit(
        &self,
        tokens: &mut Vec<Token>,
        batches: &mut Vec<Batch>,
        bytes: usize,
    ) -> Result<(), StoreError> {
        let started = Instant::now();
        let outcomes = match self.store.commit(batches) {
            Err(StoreError::TooLarge { bytes: found, .. }) => {
                return self.commit_singly(tokens, batches, bytes, found);
            }
            committed => committed?,
        };
        self.metrics.committed(batches.len(), batches.iter().map(appends).sum(), started.elapsed());
        self.backlog.batches.fetch_sub(batches.len(), Relaxed);
        self.backlog.bytes.fetch_sub(bytes, Relaxed);
        batches.clear();
        if self.health.add_committed(bytes as u64) {
            self.monitor.look();
        }
        let outcomes = tokens.drain(..).zip(outcomes);
        self.inbox.complete_own(outcomes.map(|(token, outcome)| Input::Committed { token, outcome }));
        Ok(())
    }

    /// Commits each batch alone: the store accepts less than it must, or counts otherwise, so only the store can tell
    /// which batch is too large.
    fn commit_singly(
        &self,
        tokens: &mut Vec<Token>,
        batches: &mut Vec<Batch>,
        bytes: usize,
        found: usize,
    ) -> Result<(), StoreError> {
        if let [token] = tokens[..] {
            tokens.clear();
            batches.clear();
            self.refuse(token, bytes, found);
            return Ok(());
        }
        let mut rest: VecDeque<(Token, Batch)> = tokens.drain(..).zip(batches.drain(..)).collect();
        while let Some((token, batch)) = rest.pop_front() {
            let bytes = batch.bytes();
            tokens.push(token);
            batches.push(batch);
            if let Err(error) = self.commit(tokens, batches, bytes) {
                // Returns the batches that were not committed to the caller.
                let (more_tokens, more_batches): (Vec<_>, Vec<_>) = rest.into_iter().unzip();
                tokens.extend(more_tokens);
                batches.extend(more_batches);
                return Err(error);
            }
        }
        Ok(())
    }

    /// `bytes` is the size as the backlog counted it, `found` the size that was too large.
    fn refuse(&self, token: Token, bytes: usize, found: usize) {
        tracing::warn!(bytes = found, max = BATCH_BYTES_MAX, "a batch is too large to be committed");
        self.backlog.batches.fetch_sub(1, Relaxed);
        self.backlog.bytes.fetch_sub(bytes, Relaxed);
        self.inbox.complete_own([Input::TooLarge { token, bytes: found }]);
    }

    /// Called after this writer's own commits have been reported, so that only commits of others are news to the
    /// engine.
    fn look_around(&self, watcher: &mut Watcher) {
        match watcher.look(&*self.store) {
            Ok(news) if news.is_empty() => {}
            Ok(News { reaches, delayed }) => {
                self.inbox.complete_own([Input::Elsewhere { reaches, delayed }]);
            }
            Err(error) => {
                tracing::warn!(%error, "what others committed could not be read, it will be tried again");
            }
        }
    }

    /// Returns whether there is more to do.
    fn maintain(&self, failing: &mut bool) -> Result<bool, StoreError> {
        match self.store.maintain(self.settings.maintain_rows_max) {
            Ok(done) => {
                // A slice without work does not count as a success: the next one may fail as the last one did.
                *failing &= done.rows == 0;
                self.metrics.maintained_rows.fetch_add(done.rows as u64, Relaxed);
                Ok(done.more)
            }
            Err(StoreError::Unreadable(cause)) => {
                tracing::warn!(
                    reason = cause.text(),
                    "housekeeping could not read the store, it will be tried again"
                );
                Ok(false)
            }
            Err(error) if error.may_be_retried() => {
                // Warns once, not four times a second.
                if !std::mem::replace(failing, true) {
                    tracing::warn!(target: "millrace::store", %error, "housekeeping is tried again");
                }
                if self.backlog.is_waiting() {
                    // A commit has waited for this housekeeping and will meet the same error: its wait goes on.
                    self.health.set_retrying(&error);
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

fn appends(batch: &Batch) -> usize {
    batch.ops.iter().filter(|op| matches!(op, Op::Append(_) | Op::Delay(_))).count()
}

/// Tells the owner that the store failed, by an error or a panic.
struct Report<'a> {
    writer: &'a Writer,
    reason: String,
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if !self.reason.is_empty() {
            self.writer.backlog.abandon();
            let reason = std::mem::take(&mut self.reason);
            tracing::error!(reason, "the store failed: nothing is written any more");
            self.writer.inbox.complete([Input::StorageFailed { reason }]);
        }
    }
}
