//! Group commit: takes every batch in the queue, commits them with one sync, reports the outcomes, and repeats.
//!
//! While a sync is under way the next batches gather, so the busier the writer is the more each sync carries; an idle
//! writer commits a single batch at once, without waiting for more.
//!
//! A batch larger than a store must accept is refused alone, in its turn. A commit that wrote nothing (the disk is
//! full, or another program has locked the store) goes back to the head of the queue and is retried after a pause;
//! nobody is answered meanwhile, except those whom [`CommitReceiver::waits_for_retry`] excepts. Every other failure
//! ends the writing.
//!
//! [`GroupCommit::commit_queued`] must be called by one thread at a time. The shell decides which thread, and when.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use millrace_model::{BATCH_BYTES_MAX, Batch, Outcome};
use millrace_store::{Store, StoreError};

use crate::commit_queue::{CommitLimits, CommitQueue, Next, TakenBatches};

/// Pause before the first retry of a commit that wrote nothing. The pause doubles with each attempt.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(20);

/// The shell's part of a group commit: learns how each batch ended.
pub trait CommitReceiver {
    /// The address of an answer to the sender of a batch: a token of an engine, a channel.
    type Origin;

    /// Returns why this batch is not to be committed now, if so.
    fn refuses(&self, _origin: &Self::Origin, _batch: &Batch) -> Option<StoreError> {
        None
    }

    /// The batches are durable.
    fn committed(&self, commit: Committed<Self::Origin>);

    /// This batch alone was refused, and nothing of it is written.
    fn refused(&self, origin: Self::Origin, error: StoreError);

    /// Returns whether the sender of a batch waits while a commit that wrote nothing is retried. If not, it is refused
    /// with the error.
    fn waits_for_retry(&self, _origin: &Self::Origin, _error: &StoreError) -> bool {
        true
    }

    /// A commit wrote nothing and will be retried; called before the pause.
    fn retrying(&self, _error: &StoreError, _attempt: u32) {}

    /// Nothing is written any more. `origins` are those of batches that no commit had taken, and of the commit that
    /// failed, whose batches may be durable or not.
    fn failed(&self, origins: Vec<Self::Origin>, error: StoreError);

    /// The queue had ended, and the last attempt wrote nothing: these batches are given up.
    fn given_up(&self, origins: Vec<Self::Origin>, error: StoreError) {
        self.failed(origins, error);
    }
}

/// A commit that is durable.
#[derive(Debug)]
pub struct Committed<R> {
    pub origins: Vec<R>,
    /// In the order of `origins`.
    pub outcomes: Vec<Outcome>,
    pub batches: Vec<Batch>,
    pub bytes: usize,
    pub took: Duration,
}

/// How an attempt to commit ended.
#[derive(Debug)]
pub enum Wrote {
    /// So many batches were taken out of the queue and answered.
    Done(usize),
    /// Nothing was written. The batches wait at the head of the queue until this time.
    Again(Instant),
    /// Nothing can be written any more.
    Never,
}

pub struct GroupCommit<C: CommitReceiver> {
    pub store: Arc<dyn Store>,
    pub queue: Arc<CommitQueue<C::Origin>>,
    pub receiver: C,
    limits: CommitLimits,
    retry_pause_max: Duration,
    /// Attempts of the commit at the head of the queue that wrote nothing.
    attempts: AtomicU32,
}

impl<C: CommitReceiver> fmt::Debug for GroupCommit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommit").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl<C: CommitReceiver> GroupCommit<C> {
    pub fn new(
        store: Arc<dyn Store>,
        queue: Arc<CommitQueue<C::Origin>>,
        receiver: C,
        limits: CommitLimits,
        retry_pause_max: Duration,
    ) -> GroupCommit<C> {
        GroupCommit { store, queue, receiver, limits, retry_pause_max, attempts: AtomicU32::new(0) }
    }

    /// Commits as many queued batches as one commit may hold.
    pub fn commit_queued(&self) -> Wrote {
        let panic_guard = PanicGuard(self);
        let wrote = match self.next_commit() {
            Ok(Attempt::Done { batches, wrote }) => {
                if wrote {
                    self.attempts.store(0, Relaxed);
                }
                Wrote::Done(batches)
            }
            Ok(Attempt::WroteNothing(taken, error)) => self.keep(taken, error),
            Err(CommitFailure { origins, error }) => {
                self.fail(origins, error);
                Wrote::Never
            }
        };
        std::mem::forget(panic_guard);
        wrote
    }

    /// Tells everybody that nothing is written any more if the thread that calls [`GroupCommit::commit_queued`] panics
    /// while the returned guard lives.
    pub fn panic_guard(&self) -> impl Drop + '_ {
        ThreadGuard(self)
    }

    /// Runs other work on the store, such as housekeeping. If it fails or panics, everybody is told that nothing is
    /// written any more, and `None` is returned.
    pub fn guarded<T>(&self, work: impl FnOnce() -> Result<T, StoreError>) -> Option<T> {
        let panic_guard = PanicGuard(self);
        let done = work();
        std::mem::forget(panic_guard);
        done.map_err(|error| self.fail(Vec::new(), error)).ok()
    }

    fn next_commit(&self) -> Result<Attempt<C::Origin>, CommitFailure<C::Origin>> {
        if self.queue.is_waiting() {
            self.store.wait_to_commit();
        }
        let mut taken = match self.queue.take(self.limits) {
            Next::Nothing => return Ok(Attempt::Done { batches: 0, wrote: false }),
            Next::TooLarge { origin, bytes } => {
                self.refuse_large(origin, bytes, bytes, BATCH_BYTES_MAX);
                return Ok(Attempt::Done { batches: 1, wrote: false });
            }
            Next::Commit(taken) => taken,
        };
        let batches = taken.batches.len();
        self.refuse_some(&mut taken, |origin, batch| self.receiver.refuses(origin, batch));
        if taken.batches.is_empty() {
            return Ok(Attempt::Done { batches, wrote: false });
        }
        match self.commit(taken)? {
            Some((kept, error)) => Ok(Attempt::WroteNothing(kept, error)),
            None => Ok(Attempt::Done { batches, wrote: true }),
        }
    }

    /// Returns the batches, and why, if the store wrote nothing of them and may do so later.
    fn commit(&self, taken: TakenBatches<C::Origin>) -> CommitAttempt<C::Origin> {
        let started = Instant::now();
        let outcomes = match self.store.commit(&taken.batches) {
            Ok(outcomes) => outcomes,
            Err(StoreError::TooLarge { bytes, max }) => return self.commit_singly(taken, bytes, max),
            Err(error) if error.may_be_retried() => return Ok(Some((taken, error))),
            Err(error) => return Err(CommitFailure { origins: taken.origins, error }),
        };
        let TakenBatches { origins, batches, bytes } = taken;
        self.queue.settled(batches.len(), bytes);
        self.receiver.committed(Committed { origins, outcomes, batches, bytes, took: started.elapsed() });
        Ok(None)
    }

    /// Commits each batch alone: the store accepts less than it must, or counts otherwise, so only the store can tell
    /// which batch is too large.
    fn commit_singly(
        &self,
        taken: TakenBatches<C::Origin>,
        found: usize,
        max: usize,
    ) -> CommitAttempt<C::Origin> {
        let TakenBatches { mut origins, batches, bytes } = taken;
        if batches.len() == 1 {
            if let Some(origin) = origins.pop() {
                self.refuse_large(origin, bytes, found, max);
            }
            return Ok(None);
        }
        let mut rest = origins.into_iter().zip(batches);
        while let Some((origin, batch)) = rest.next() {
            let bytes = batch.bytes();
            let one = TakenBatches { origins: vec![origin], batches: vec![batch], bytes };
            let kept = match self.commit(one) {
                Ok(None) => continue,
                Ok(Some(kept)) => kept,
                Err(mut failure) => {
                    failure.origins.extend(rest.map(|(origin, _)| origin));
                    return Err(failure);
                }
            };
            let (mut kept, error) = kept;
            for (origin, batch) in rest {
                kept.bytes += batch.bytes();
                kept.origins.push(origin);
                kept.batches.push(batch);
            }
            return Ok(Some((kept, error)));
        }
        Ok(None)
    }

    /// Keeps the batches of a commit that wrote nothing for the next attempt, unless the queue has ended.
    fn keep(&self, mut taken: TakenBatches<C::Origin>, error: StoreError) -> Wrote {
        let attempt = self.attempts.fetch_add(1, Relaxed);
        self.receiver.retrying(&error, attempt);
        self.refuse_some(&mut taken, |origin, _| {
            (!self.receiver.waits_for_retry(origin, &error)).then(|| error.clone())
        });
        if let Some(origins) = self.queue.put_back(taken) {
            let batches = origins.len();
            tracing::error!(target: "millrace::store", %error, batches, "not written before the end; nobody was told that it was");
            self.receiver.given_up(origins, error);
            return Wrote::Never;
        }
        let factor = 1u32.checked_shl(attempt).unwrap_or(u32::MAX);
        Wrote::Again(Instant::now() + RETRY_PAUSE_MIN.saturating_mul(factor).min(self.retry_pause_max))
    }

    /// Refuses the batches for which `why` has an error.
    fn refuse_some(
        &self,
        taken: &mut TakenBatches<C::Origin>,
        why: impl Fn(&C::Origin, &Batch) -> Option<StoreError>,
    ) {
        let refused = |(origin, batch): (&C::Origin, &Batch)| why(origin, batch).is_some();
        if !taken.origins.iter().zip(&taken.batches).any(refused) {
            return;
        }
        let (origins, batches) = (std::mem::take(&mut taken.origins), std::mem::take(&mut taken.batches));
        for (origin, batch) in origins.into_iter().zip(batches) {
            match why(&origin, &batch) {
                Some(error) => {
                    taken.bytes -= batch.bytes();
                    self.queue.settled(1, batch.bytes());
                    self.receiver.refused(origin, error);
                }
                None => {
                    taken.origins.push(origin);
                    taken.batches.push(batch);
                }
            }
        }
    }

    /// `bytes` is the size as the queue counted it, `found` the size that was too large.
    fn refuse_large(&self, origin: C::Origin, bytes: usize, found: usize, max: usize) {
        tracing::warn!(bytes = found, max, "a batch is too large to be committed");
        self.queue.settled(1, bytes);
        self.receiver.refused(origin, StoreError::TooLarge { bytes: found, max });
    }

    fn fail(&self, mut origins: Vec<C::Origin>, error: StoreError) {
        match &error {
            StoreError::Deposed(_) => tracing::warn!(%error, "this process no longer leads the store"),
            error => tracing::error!(%error, "the store failed: nothing is written any more"),
        }
        origins.extend(self.queue.fail(error.clone()));
        self.receiver.failed(origins, error);
    }
}

/// `Ok(Some(..))` has the batches, and why, if the store wrote nothing of them.
type CommitAttempt<R> = Result<Option<(TakenBatches<R>, StoreError)>, CommitFailure<R>>;

enum Attempt<R> {
    /// So many batches were answered. `wrote` is false if all of them were refused.
    Done {
        batches: usize,
        wrote: bool,
    },
    WroteNothing(TakenBatches<R>, StoreError),
}

/// A commit that failed; the origins are those of its batches, which may be durable or not.
struct CommitFailure<R> {
    origins: Vec<R>,
    error: StoreError,
}

/// Dropped only by a panic: tells everybody who waits that nothing is written any more.
struct PanicGuard<'a, C: CommitReceiver>(&'a GroupCommit<C>);

impl<C: CommitReceiver> Drop for PanicGuard<'_, C> {
    fn drop(&mut self) {
        let error = StoreError::Poisoned("the writer ended unexpectedly".into());
        self.0.fail(Vec::new(), error);
    }
}

/// For a thread that only commits: however it panics, nobody waits for ever.
struct ThreadGuard<'a, C: CommitReceiver>(&'a GroupCommit<C>);

impl<C: CommitReceiver> Drop for ThreadGuard<'_, C> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.0.queue.has_failed() {
            let error = StoreError::Poisoned("the writer ended unexpectedly".into());
            self.0.fail(Vec::new(), error);
        }
    }
}
