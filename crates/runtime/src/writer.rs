//! The writer thread: adaptive group commit.
//!
//! It takes everything that is queued, commits it with one sync, reports, and looks again. While a sync is under way
//! the next batches gather, so the busier it is the more each sync carries; an idle writer commits a single batch at
//! once. It never waits for company.
//!
//! A batch larger than a store must take is refused alone, in its turn: it is the one failure that harms nobody else.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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
    wake: Condvar,
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
        drop(queue);
        self.wake.notify_one();
    }

    pub(crate) fn batches(&self) -> usize {
        self.batches.load(Relaxed)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Lets the writer finish what is queued and then end.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.wake.notify_one();
    }

    fn abandon(&self) {
        let mut queue = self.lock();
        queue.ended = true;
        queue.waiting.clear();
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
}

/// What one look at the queue brought.
enum Next {
    Commit,
    /// The first batch is larger than any store must take.
    Refuse(Token),
    /// The queue is empty and something else is due.
    Idle,
    Ended,
}

impl Writer {
    pub(crate) fn run(self, mut watcher: Watcher) {
        // Should the store panic, the engine must still learn that nothing is written any more.
        let mut report = Report { writer: &self, reason: "the writer thread ended unexpectedly".to_owned() };
        report.reason = match self.write(&mut watcher) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
    }

    fn write(&self, watcher: &mut Watcher) -> Result<(), StoreError> {
        let interval = Duration::from_millis(self.settings.maintain_interval_ms);
        let mut maintain_at = Instant::now() + interval;
        let (mut tokens, mut batches) = (Vec::new(), Vec::new());
        loop {
            let bytes = match self.take(&mut tokens, &mut batches, maintain_at.min(watcher.look_at)) {
                (Next::Ended, _) => return Ok(()),
                (Next::Idle, _) => 0,
                (Next::Commit, bytes) => bytes,
                (Next::Refuse(token), bytes) => {
                    self.refuse(token, bytes, bytes);
                    continue;
                }
            };
            if !batches.is_empty() {
                self.commit(&mut tokens, &mut batches, bytes)?;
            }
            if Instant::now() >= watcher.look_at {
                self.look_around(watcher);
            }
            if Instant::now() >= maintain_at {
                let started = Instant::now();
                let more = self.maintain()?;
                let pause = match (more, self.backlog.batches()) {
                    (false, _) => interval,
                    (true, 0) => Duration::ZERO,
                    (true, _) => started.elapsed() * BUSY_PAUSE,
                };
                maintain_at = Instant::now() + pause;
            }
        }
    }

    /// Waits for batches until `until`, then takes as many as one commit may hold.
    fn take(&self, tokens: &mut Vec<Token>, batches: &mut Vec<Batch>, until: Instant) -> (Next, usize) {
        let wait = until.saturating_duration_since(Instant::now());
        let empty = |queue: &mut Queue| queue.waiting.is_empty() && !queue.ended;
        let (mut queue, _) = self
            .backlog
            .wake
            .wait_timeout_while(self.backlog.lock(), wait, empty)
            .unwrap_or_else(PoisonError::into_inner);
        let mut total = 0;
        while let Some((token, _, bytes)) = queue.waiting.front() {
            if *bytes > BATCH_BYTES_MAX {
                if !batches.is_empty() {
                    break;
                }
                let refused = (Next::Refuse(*token), *bytes);
                queue.waiting.pop_front();
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
        match (batches.is_empty(), queue.ended) {
            (false, _) => (Next::Commit, total),
            (true, true) => (Next::Ended, 0),
            (true, false) => (Next::Idle, 0),
        }
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
        self.inbox.complete(outcomes.map(|(token, outcome)| Input::Committed { token, outcome }));
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
        self.inbox.complete([Input::TooLarge { token, bytes: found }]);
    }

    /// Behind the reports of this writer's own commits, so that only what others did is news to the engine.
    fn look_around(&self, watcher: &mut Watcher) {
        match watcher.look(&*self.store) {
            Ok(reaches) if reaches.is_empty() => {}
            Ok(reaches) => self.inbox.complete([Input::Elsewhere { reaches }]),
            Err(error) => {
                tracing::warn!(%error, "what others committed could not be read, it will be tried again");
            }
        }
    }

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
    batch.ops.iter().filter(|op| matches!(op, Op::Append(_))).count()
}

/// Tells the owner how the writer ended, however it ended.
struct Report<'a> {
    writer: &'a Writer,
    reason: String,
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        self.writer.backlog.abandon();
        if !self.reason.is_empty() {
            let reason = std::mem::take(&mut self.reason);
            tracing::error!(reason, "the store failed: nothing is written any more");
            self.writer.inbox.complete([Input::StorageFailed { reason }]);
        }
    }
}
