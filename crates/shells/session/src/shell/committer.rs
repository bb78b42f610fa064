//! The thread that writes: group commit (`millrace_shell::GroupCommit`) for all callers in this process that share a
//! handle on the store. A caller that is alone commits on its own thread: waking another thread and being woken by it
//! costs as much as the work itself. In idle moments, and a fifth of the time in busy ones, the thread does a slice of housekeeping,
//! unless a server runs on the same store and does that.
//!
//! When a commit wrote nothing because the disk is full, callers get the error, but batches of a session's loop are
//! kept and tried again. While another program has locked the store, everything is kept and tried again. Below
//! `disk_free_bytes_min` free bytes, callers are refused batches that would add to the store.
//!
//! The queue needs no limit of its own: each caller waits for its answer before it submits again, and the engine has
//! limits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_claims::{Input, Token};
use millrace_model::{Batch, Op, Outcome};
use millrace_shell::{
    CommitLimits, CommitQueue, CommitReceiver, Committed, GroupCommit, Housekeeping, Wrote,
};
use millrace_store::StoreError;
use millrace_stores::OpenedStore;
use parking_lot::Mutex;

use super::mailbox::{Mail, Mailbox};

#[cfg(test)]
mod tests;

const LIMITS: CommitLimits = CommitLimits { batches_max: 4096, bytes_max: 16 << 20 };
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
const MAINTAIN_ROWS_MAX: usize = 512;
const MAINTAIN_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) type CommitResult = Result<Outcome, StoreError>;

/// The sender of a batch.
#[derive(Debug)]
pub(crate) enum BatchOrigin {
    Caller(SyncSender<CommitResult>),
    Worker(Arc<Mailbox>, Token),
}

#[derive(Debug)]
pub(crate) struct Committer {
    shared: Arc<CommitterShared>,
    group: Arc<GroupCommit<Receiver>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct CommitterShared {
    queue: Arc<CommitQueue<BatchOrigin>>,
    /// Loops that want to know when events were appended.
    listeners: Mutex<Vec<Weak<Mailbox>>>,
    commits: AtomicU64,
    /// Held by the thread that commits: the committer's own, or that of a caller.
    role: Mutex<()>,
    /// Whether the last commit had several batches, or wrote nothing: then callers leave committing to the committer's
    /// thread, which gathers their batches and keeps the pauses before retries.
    is_shared: AtomicBool,
    /// Why nothing may be added to the store, if so.
    low: Mutex<Option<String>>,
}

impl Committer {
    pub(crate) fn start(opened: OpenedStore) -> std::io::Result<Committer> {
        let shared = Arc::new(CommitterShared::default());
        let (store, queue) = (opened.store.clone(), shared.queue.clone());
        let receiver = Receiver(shared.clone());
        let group = Arc::new(GroupCommit::new(store, queue, receiver, LIMITS, RETRY_PAUSE_MAX));
        let writer = group.clone();
        // Before the first caller, which may commit on its own thread.
        shared.check_room(&opened);
        let thread = std::thread::Builder::new()
            .name("millrace-committer".to_owned())
            .spawn(move || write_until_end(&opened, &writer))?;
        Ok(Committer { shared, group, thread: Some(thread) })
    }

    pub(crate) fn submit(&self, mut batches: Vec<(BatchOrigin, Batch)>) {
        if let Err(closed) = self.shared.queue.push(&mut batches) {
            let error = StoreError::from(closed);
            batches.into_iter().for_each(|(sender, _)| sender.answer(Err(error.clone())));
        }
    }

    /// Waits until the batch is durable or was refused.
    pub(crate) fn commit(&self, batch: Batch) -> CommitResult {
        let (sender, answer) = sync_channel(1);
        let batches = vec![(BatchOrigin::Caller(sender), batch)];
        match self.shared.is_shared.load(Ordering::Relaxed) {
            true => self.submit(batches),
            false => self.commit_here(batches),
        }
        answer.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Commits on the caller's thread, unless another thread is committing: that one, or the committer's, commits the
    /// batches then.
    fn commit_here(&self, mut batches: Vec<(BatchOrigin, Batch)>) {
        if let Err(closed) = self.shared.queue.push_quietly(&mut batches) {
            let error = StoreError::from(closed);
            return batches.into_iter().for_each(|(sender, _)| sender.answer(Err(error.clone())));
        }
        let Some(role) = self.shared.role.try_lock() else { return self.shared.queue.wake() };
        self.shared.commit_queued(&self.group);
        drop(role);
        // Batches may be left that did not fit, or that are to be tried again. A thread that added some meanwhile has woken the
        // committer's thread.
        if self.shared.queue.is_waiting() {
            self.shared.queue.wake();
        }
    }

    /// Commits many batches at once, which share syncs. Waits for all of them.
    pub(crate) fn commit_all(&self, batches: Vec<Batch>) -> Vec<CommitResult> {
        let (submitted, answers): (Vec<_>, Vec<_>) = batches
            .into_iter()
            .map(|batch| {
                let (sender, answer) = sync_channel(1);
                ((BatchOrigin::Caller(sender), batch), answer)
            })
            .unzip();
        self.submit(submitted);
        answers.into_iter().map(|answer| answer.recv().unwrap_or_else(|_| Err(ended()))).collect()
    }

    /// Returns the number of transactions so far, each with one sync, however many batches it held.
    pub(crate) fn commits_made(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    /// Returns the error that the store has failed with.
    pub(crate) fn failure(&self) -> Option<StoreError> {
        self.shared.queue.failure()
    }

    pub(crate) fn listen(&self, mailbox: &Arc<Mailbox>) {
        let mut listeners = self.shared.listeners.lock();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(mailbox));
    }
}

impl Drop for Committer {
    /// Writes what is still queued.
    fn drop(&mut self) {
        self.shared.queue.end();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // The group commit has reported failures and panics to everybody who waited.
            let _ = thread.join();
        }
    }
}

fn ended() -> StoreError {
    StoreError::Poisoned("the thread that writes has ended".into())
}

impl BatchOrigin {
    fn answer(self, result: CommitResult) {
        match self {
            // A failed send means that the caller does not wait any more.
            BatchOrigin::Caller(sender) => drop(sender.send(result)),
            BatchOrigin::Worker(mailbox, token) => mailbox.push(Mail::Input(worker_input(token, result))),
        }
    }
}

/// Returns how a commit of a worker ended. Every failure except `TooLarge` leaves open whether the batch is written.
pub(super) fn worker_input(token: Token, result: CommitResult) -> Input {
    match result {
        Ok(outcome) => Input::Committed { token, outcome },
        Err(StoreError::TooLarge { bytes, max }) => Input::TooLarge { token, bytes, limit: max },
        Err(error) => Input::Failed { reason: error.to_string() },
    }
}

/// The thread: commits until the queue has ended and is empty, or nothing can be written any more.
fn write_until_end(opened: &OpenedStore, group: &GroupCommit<Receiver>) {
    let _guard = group.panic_guard();
    let (shared, queue) = (&group.receiver.0, &group.queue);
    let mut housekeeping = Housekeeping::new(MAINTAIN_ROWS_MAX, MAINTAIN_INTERVAL);
    let mut commits = 0;
    loop {
        if shared.is_shared.load(Ordering::Relaxed) {
            // A caller that was just answered may submit again as soon as it gets a core: then this commit includes its
            // batch. If no thread is ready to run, yielding costs nothing, and a single caller never waits for others.
            std::thread::yield_now();
        }
        if !queue.wait_for_batches(housekeeping.due_at()) {
            return;
        }
        let wrote = {
            let _role = shared.role.lock();
            shared.commit_queued(group)
        };
        match wrote {
            Wrote::Done(_) => {}
            Wrote::Again(at) => queue.wait_for_end(at),
            Wrote::Never => return,
        }
        // Callers have made some of these commits themselves.
        if std::mem::replace(&mut commits, shared.commits.load(Ordering::Relaxed)) != commits {
            housekeeping.committed();
        }
        if Instant::now() >= housekeeping.due_at() {
            if shared.check_room(opened) {
                // Callers are refused until it is checked again.
                housekeeping.committed();
            }
            if opened.store.is_served_elsewhere() {
                housekeeping.skip();
            } else if group.guarded(|| housekeeping.run(&*opened.store, || queue.is_waiting())).is_none() {
                return;
            }
        }
    }
}

impl CommitterShared {
    /// Must be called with the role.
    fn commit_queued(&self, group: &GroupCommit<Receiver>) -> Wrote {
        let wrote = group.commit_queued();
        let is_shared = !matches!(wrote, Wrote::Done(0 | 1));
        self.is_shared.store(is_shared, Ordering::Relaxed);
        wrote
    }

    /// Returns whether nothing may be added to the store.
    fn check_room(&self, opened: &OpenedStore) -> bool {
        let mut low = self.low.lock();
        *low = opened.store.disk_use().and_then(|disk_use| disk_use.low());
        low.is_some()
    }

    fn listeners(&self) -> Vec<Arc<Mailbox>> {
        self.listeners.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// Passes the outcomes of commits on.
struct Receiver(Arc<CommitterShared>);

impl CommitReceiver for Receiver {
    type Origin = BatchOrigin;

    fn refuses(&self, sender: &BatchOrigin, batch: &Batch) -> Option<StoreError> {
        match sender {
            BatchOrigin::Caller(_) if adds(batch) => {
                self.0.low.lock().clone().map(|low| StoreError::NoSpace(low.into()))
            }
            _ => None,
        }
    }

    fn committed(&self, commit: Committed<BatchOrigin>) {
        self.0.commits.fetch_add(1, Ordering::Relaxed);
        let appended =
            |outcome: &Outcome| matches!(outcome, Outcome::Done(done) if !done.appended.is_empty());
        let news = commit.outcomes.iter().any(appended);
        deliver(commit.origins.into_iter().zip(commit.outcomes));
        if news {
            self.0.listeners().iter().for_each(|mailbox| mailbox.tell_news());
        }
    }

    fn refused(&self, sender: BatchOrigin, error: StoreError) {
        sender.answer(Err(error));
    }

    /// Callers are told of a full disk; the loop of a session waits.
    fn waits_for_retry(&self, sender: &BatchOrigin, error: &StoreError) -> bool {
        matches!(sender, BatchOrigin::Worker(..)) || !matches!(error, StoreError::NoSpace(_))
    }

    fn retrying(&self, error: &StoreError, attempt: u32) {
        if attempt == 0 {
            tracing::warn!(%error, "a commit wrote nothing and is tried again");
        }
    }

    fn failed(&self, senders: Vec<BatchOrigin>, error: StoreError) {
        senders.into_iter().for_each(|sender| sender.answer(Err(error.clone())));
        // A panic loses the senders of its commit, so every loop is told.
        for mailbox in self.0.listeners() {
            mailbox.push(Mail::Input(Input::Failed { reason: error.to_string() }));
        }
    }
}

/// Returns whether a batch adds events or state to the store.
fn adds(batch: &Batch) -> bool {
    batch.ops.iter().any(|op| matches!(op, Op::Append(_) | Op::Delay(_) | Op::Reconcile(_)))
}

/// Delivers the outcomes; consecutive answers of a worker are put into its mailbox together.
fn deliver(answers: impl Iterator<Item = (BatchOrigin, Outcome)>) {
    let mut for_worker: Option<(Arc<Mailbox>, Vec<Mail>)> = None;
    for (sender, outcome) in answers {
        match sender {
            BatchOrigin::Worker(mailbox, token) => {
                let mail = Mail::Input(worker_input(token, Ok(outcome)));
                match &mut for_worker {
                    Some((known, gathered)) if Arc::ptr_eq(known, &mailbox) => gathered.push(mail),
                    _ => {
                        if let Some((known, gathered)) = for_worker.replace((mailbox, vec![mail])) {
                            known.push_all(gathered.into_iter());
                        }
                    }
                }
            }
            caller => caller.answer(Ok(outcome)),
        }
    }
    if let Some((mailbox, gathered)) = for_worker {
        mailbox.push_all(gathered.into_iter());
    }
}
