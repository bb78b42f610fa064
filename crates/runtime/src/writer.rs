//! The writer: adaptive group commit. One thread of the crew at a time is it.
//!
//! It takes everything that is queued, commits it with one sync, reports, and looks again. While a sync is under way
//! the next batches gather, so the busier it is the more each sync carries; an idle writer commits a single batch at
//! once. It never waits for company.
//!
//! A batch larger than a store must take is refused alone, in its turn: it is the one failure that harms nobody else.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millrace_bus::{Input, Token};
use millrace_model::{BATCH_BYTES_MAX, Batch, Op};
use millrace_store::{Store, StoreError};

use crate::inbox::Inbox;
use crate::metrics::Metrics;
use crate::settings::RuntimeSettings;
use crate::watcher::Watcher;

/// While batches wait, housekeeping pauses this many times as long as its last slice took: it gets a fifth of the
/// writer's time, enough not to fall behind for good, and a batch waits for one slice at most.
const BUSY_PAUSE: u32 = 4;

/// Batches on their way to the disk. Bounded by the owner, which takes no requests while it is over its bounds.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    queue: Mutex<Queue>,
    /// Queued and not yet taken.
    waiting: AtomicUsize,
    /// Queued and under way; read without the lock.
    batches: AtomicUsize,
    bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Token, Batch, usize)>,
    ended: bool,
}

impl Backlog {
    /// Hands over the commits of one owner turn. After the end they are dropped: their outcome is never reported.
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

    /// Whether there is something to commit. Exact for whoever holds the inbox's lock: batches come and go on threads
    /// that pass it afterwards.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting() > 0
    }

    /// Batches to commit. Exact like [`Backlog::is_waiting`].
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// How many requests the next turn may take: none while the bounds are passed.
    pub(crate) fn requests_max(&self, settings: &RuntimeSettings) -> usize {
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

    /// Takes nothing more; what is queued is still committed.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
    }

    fn abandon(&self) {
        let mut queue = self.lock();
        queue.ended = true;
        queue.waiting.clear();
        self.waiting.store(0, Relaxed);
        self.batches.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
    }

    /// Every section leaves the queue consistent, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Writer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) settings: RuntimeSettings,
    /// Never contended: one thread at a time is the writer.
    pub(crate) chores: Mutex<Chores>,
}

/// What the writer does besides commits, and when.
pub(crate) struct Chores {
    maintain_at: Instant,
    watcher: Watcher,
}

impl Chores {
    pub(crate) fn new(settings: &RuntimeSettings, watcher: Watcher) -> Chores {
        let interval = Duration::from_millis(settings.maintain_interval_ms);
        Chores { maintain_at: Instant::now() + interval, watcher }
    }
}

/// What one look at the queue brought.
enum Next {
    /// With the bytes the backlog counts for it.
    Commit(usize),
    /// The first batch is larger than any store must take.
    Refuse(Token, usize),
}

impl Writer {
    /// Commits as much of what is queued as one commit may hold. False when nothing can be written any more.
    pub(crate) fn commit_queued(&self) -> bool {
        self.guarded(|writer| {
            let (mut tokens, mut batches) = (Vec::new(), Vec::new());
            match writer.take(&mut tokens, &mut batches) {
                Next::Commit(_) if batches.is_empty() => Ok(()),
                Next::Commit(bytes) => writer.commit(&mut tokens, &mut batches, bytes),
                Next::Refuse(token, bytes) => {
                    writer.refuse(token, bytes, bytes);
                    Ok(())
                }
            }
        })
        .is_some()
    }

    /// Does what is due, and tells when something will be again. `None` when nothing can be written any more.
    pub(crate) fn chores(&self) -> Option<Instant> {
        let mut chores = self.chores.lock().unwrap_or_else(PoisonError::into_inner);
        let Chores { maintain_at, watcher } = &mut *chores;
        self.guarded(|writer| {
            if Instant::now() >= watcher.look_at {
                writer.look_around(watcher);
            }
            let started = Instant::now();
            if started >= *maintain_at {
                let pause = match (writer.maintain()?, writer.backlog.batches()) {
                    (false, _) => Duration::from_millis(writer.settings.maintain_interval_ms),
                    (true, 0) => Duration::ZERO,
                    (true, _) => started.elapsed() * BUSY_PAUSE,
                };
                *maintain_at = Instant::now() + pause;
            }
            Ok(watcher.look_at.min(*maintain_at))
        })
    }

    /// Should the store fail, or panic, the engine must learn that nothing is written any more.
    fn guarded<T>(&self, work: impl FnOnce(&Writer) -> Result<T, StoreError>) -> Option<T> {
        let mut report = Report { writer: self, reason: "the writer ended unexpectedly".to_owned() };
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
        let outcomes = tokens.drain(..).zip(outcomes);
        self.inbox.complete_own(outcomes.map(|(token, outcome)| Input::Committed { token, outcome }));
        Ok(())
    }

    /// The store takes less than it must, or counts otherwise: which batch is too large only it can tell.
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
        for (token, batch) in tokens.drain(..).zip(batches.drain(..)) {
            let bytes = batch.bytes();
            self.commit(&mut vec![token], &mut vec![batch], bytes)?;
        }
        Ok(())
    }

    /// `bytes` is what the backlog counted, `found` what was too large.
    fn refuse(&self, token: Token, bytes: usize, found: usize) {
        tracing::warn!(bytes = found, max = BATCH_BYTES_MAX, "a batch is too large to be committed");
        self.backlog.batches.fetch_sub(1, Relaxed);
        self.backlog.bytes.fetch_sub(bytes, Relaxed);
        self.inbox.complete_own([Input::TooLarge { token, bytes: found }]);
    }

    /// Behind the reports of this writer's own commits, so that only what others did is news to the engine.
    fn look_around(&self, watcher: &mut Watcher) {
        match watcher.look(&*self.store) {
            Ok(reaches) if reaches.is_empty() => {}
            Ok(reaches) => self.inbox.complete_own([Input::Elsewhere { reaches }]),
            Err(error) => {
                tracing::warn!(%error, "what others committed could not be read, it will be tried again");
            }
        }
    }

    /// Whether there is more to do.
    fn maintain(&self) -> Result<bool, StoreError> {
        match self.store.maintain(self.settings.maintain_rows_max) {
            Ok(done) => {
                self.metrics.maintained_rows.fetch_add(done.rows as u64, Relaxed);
                Ok(done.more)
            }
            Err(StoreError::Unreadable(reason)) => {
                tracing::warn!(reason, "housekeeping could not read the store, it will be tried again");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

fn appends(batch: &Batch) -> usize {
    batch.ops.iter().filter(|op| matches!(op, Op::Append(_) | Op::Delay(_))).count()
}

/// Tells the owner that the store failed, however it failed.
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
