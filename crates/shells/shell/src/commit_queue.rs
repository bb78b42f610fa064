//! The queue in front of the disk: batches that wait for the next commit, each with the origin that its sender expects.
//!
//! The queue has no limit of its own, because only its users know what may wait. The broker takes no requests while
//! [`CommitQueue::batches`] or [`CommitQueue::bytes`] exceed its settings, and callers of a session wait for their
//! answer before they submit again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use millrace_model::{BATCH_BYTES_MAX, Batch};
use millrace_store::StoreError;
use parking_lot::{Condvar, Mutex};

/// How much one commit may hold. A first batch is taken whatever its size.
#[derive(Clone, Copy, Debug)]
pub struct CommitLimits {
    pub batches_max: usize,
    pub bytes_max: usize,
}

#[derive(Debug)]
pub struct CommitQueue<R> {
    state: Mutex<QueueState<R>>,
    changed: Condvar,
    /// Batches in the queue.
    waiting: AtomicUsize,
    /// Batches and bytes in the queue and in the commit under way; read without the lock.
    batches: AtomicUsize,
    bytes: AtomicUsize,
}

#[derive(Debug)]
struct QueueState<R> {
    waiting: VecDeque<Queued<R>>,
    closed: Option<QueueClosed>,
}

/// Why no more batches are accepted.
#[derive(Clone, Debug)]
pub enum QueueClosed {
    /// The shell has ended.
    Ended,
    /// The store has failed.
    Failed(StoreError),
}

impl From<QueueClosed> for StoreError {
    fn from(closed: QueueClosed) -> StoreError {
        match closed {
            QueueClosed::Ended => StoreError::Poisoned("the thread that writes has ended".into()),
            QueueClosed::Failed(error) => error,
        }
    }
}

#[derive(Debug)]
struct Queued<R> {
    origin: R,
    batch: Batch,
    bytes: usize,
}

/// Batches taken out of the queue for one commit; `origins` and `batches` have the same order and length.
#[derive(Debug)]
pub(crate) struct TakenBatches<R> {
    pub(crate) origins: Vec<R>,
    pub(crate) batches: Vec<Batch>,
    /// The size of the batches, as the queue counts it.
    pub(crate) bytes: usize,
}

/// The next work in the queue.
pub(crate) enum Next<R> {
    Nothing,
    Commit(TakenBatches<R>),
    /// The first batch is larger than any store must accept.
    TooLarge {
        origin: R,
        bytes: usize,
    },
}

impl<R> Default for CommitQueue<R> {
    fn default() -> Self {
        CommitQueue {
            state: Mutex::new(QueueState { waiting: VecDeque::new(), closed: None }),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            batches: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }
}

impl<R> CommitQueue<R> {
    /// Adds batches, which are committed in the order in which they were added.
    ///
    /// # Errors
    ///
    /// After the end or a failure of the store, the batches stay in `submitted` and the reason is returned.
    pub fn push(&self, submitted: &mut Vec<(R, Batch)>) -> Result<(), QueueClosed> {
        if submitted.is_empty() {
            return Ok(());
        }
        self.push_quietly(submitted)?;
        self.wake();
        Ok(())
    }

    /// Wakes a thread that waits for batches.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Like [`CommitQueue::push`], but wakes nobody: the caller commits the batches itself, or calls
    /// [`CommitQueue::wake`].
    pub fn push_quietly(&self, submitted: &mut Vec<(R, Batch)>) -> Result<(), QueueClosed> {
        let mut state = self.state.lock();
        if let Some(reason) = &state.closed {
            return Err(reason.clone());
        }
        for (origin, batch) in submitted.drain(..) {
            let bytes = batch.bytes();
            self.batches.fetch_add(1, Relaxed);
            self.bytes.fetch_add(bytes, Relaxed);
            state.waiting.push_back(Queued { origin, batch, bytes });
        }
        self.waiting.store(state.waiting.len(), Relaxed);
        Ok(())
    }

    /// Returns the number of batches that no commit has taken yet.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    pub fn is_waiting(&self) -> bool {
        self.waiting() > 0
    }

    /// Returns the number of batches in the queue and in the commit under way.
    pub fn batches(&self) -> usize {
        self.batches.load(Relaxed)
    }

    /// Returns the bytes of the batches in the queue and in the commit under way.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Accepts no more batches; those in the queue can still be committed.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.closed.get_or_insert(QueueClosed::Ended);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until a batch is there, until the end, or until the given time. Returns false if the queue has ended and
    /// is empty.
    pub fn wait_for_batches(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        let empty = |state: &mut QueueState<R>| state.waiting.is_empty() && state.closed.is_none();
        self.changed.wait_while_until(&mut state, empty, until);
        !state.waiting.is_empty() || state.closed.is_none()
    }

    /// Waits until the given time, or until the end.
    pub fn wait_for_end(&self, until: Instant) {
        let mut state = self.state.lock();
        self.changed.wait_while_until(&mut state, |state| state.closed.is_none(), until);
    }

    /// Takes as many batches as one commit may hold.
    pub(crate) fn take(&self, limits: CommitLimits) -> Next<R> {
        let mut state = self.state.lock();
        let mut taken = TakenBatches { origins: Vec::new(), batches: Vec::new(), bytes: 0 };
        while let Some(Queued { bytes, .. }) = state.waiting.front() {
            let first = taken.batches.is_empty();
            let full = taken.batches.len() >= limits.batches_max || taken.bytes + bytes > limits.bytes_max;
            if !first && (full || *bytes > BATCH_BYTES_MAX) {
                break;
            }
            let Some(Queued { origin, batch, bytes }) = state.waiting.pop_front() else { break };
            if bytes > BATCH_BYTES_MAX {
                self.waiting.store(state.waiting.len(), Relaxed);
                return Next::TooLarge { origin, bytes };
            }
            taken.bytes += bytes;
            taken.origins.push(origin);
            taken.batches.push(batch);
        }
        self.waiting.store(state.waiting.len(), Relaxed);
        if taken.batches.is_empty() { Next::Nothing } else { Next::Commit(taken) }
    }

    /// Puts batches of a commit that wrote nothing back at the head of the queue. After the end nobody will try again:
    /// then their origins, and those of all batches in the queue, are returned.
    pub(crate) fn put_back(&self, taken: TakenBatches<R>) -> Option<Vec<R>> {
        let mut state = self.state.lock();
        for (origin, batch) in taken.origins.into_iter().zip(taken.batches).rev() {
            let bytes = batch.bytes();
            state.waiting.push_front(Queued { origin, batch, bytes });
        }
        self.waiting.store(state.waiting.len(), Relaxed);
        state.closed.is_some().then(|| self.clear(&mut state))
    }

    /// Accepts no more batches and returns the origins of those in the queue.
    pub(crate) fn fail(&self, reason: StoreError) -> Vec<R> {
        let mut state = self.state.lock();
        state.closed = Some(QueueClosed::Failed(reason));
        let origins = self.clear(&mut state);
        drop(state);
        self.changed.notify_all();
        origins
    }

    /// Accepts no more batches, and returns the origins of those that nobody will commit any more. For the end of a shell
    /// whose threads have ended.
    pub fn close(&self) -> Vec<R> {
        self.end();
        self.clear(&mut self.state.lock())
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure().is_some()
    }

    /// Returns the error that the store has failed with.
    pub fn failure(&self) -> Option<StoreError> {
        match &self.state.lock().closed {
            Some(QueueClosed::Failed(error)) => Some(error.clone()),
            Some(QueueClosed::Ended) | None => None,
        }
    }

    /// Counts batches out that were committed or refused.
    pub(crate) fn settled(&self, batches: usize, bytes: usize) {
        self.batches.fetch_sub(batches, Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    fn clear(&self, state: &mut QueueState<R>) -> Vec<R> {
        self.waiting.store(0, Relaxed);
        self.batches.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
        state.waiting.drain(..).map(|queued| queued.origin).collect()
    }
}
