//! The thread that writes: group commit for all callers in this process that share a handle on the store.
//!
//! The thread takes everything that is queued, commits it with one sync, answers, and repeats: the busier it is, the
//! more each sync carries. In idle moments, and a fifth of the time in busy ones, it does a slice of housekeeping,
//! unless a server runs on the same store and does that.
//!
//! When a commit wrote nothing because the disk is full, callers get the error, but batches of a session's loop are
//! kept and tried again. While another program has locked the store, everything is kept and tried again. Below
//! `disk_free_bytes_min` free bytes, callers are refused batches that would add to the store.
//!
//! The server's writer works in the same way, but is bound to the bus engine's tokens, limits and metrics. The queue
//! needs no limit of its own: each caller waits for its answer before it asks again, and the engine has limits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_claims::{Input, Token};
use millrace_model::{BATCH_BYTES_MAX, Batch, Outcome};
use millrace_store::StoreError;
use millrace_stores::OpenedStore;

use super::mailbox::{Mail, Mailbox};

mod refuse;
#[cfg(test)]
mod tests;

use refuse::{adds, refuse};

/// Batches and bytes merged into a commit: the rest waits for the next. The first batch is taken whatever its size.
const COMMIT_BATCHES_MAX: usize = 4096;
const COMMIT_BYTES_MAX: usize = 16 << 20;
/// Rows of housekeeping in a slice, and the pause when the last slice left nothing to do.
const MAINTAIN_ROWS_MAX: usize = 512;
const MAINTAIN_INTERVAL: Duration = Duration::from_millis(500);
/// While batches wait, housekeeping pauses this many times as long as its last slice took.
const BUSY_PAUSE: u32 = 4;
/// The pause before a commit that wrote nothing is tried again, doubled from one attempt to the next.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(20);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

pub(crate) type Committed = Result<Outcome, StoreError>;

#[derive(Debug)]
pub(crate) enum Reply {
    Caller(SyncSender<Committed>),
    Worker(Arc<Mailbox>, Token),
}

#[derive(Debug)]
pub(crate) struct Committer {
    queue: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Loops that want to know when events were appended.
    listeners: Mutex<Vec<Weak<Mailbox>>>,
    commits: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Batch, Reply)>,
    ended: bool,
    failed: Option<StoreError>,
}

impl Committer {
    pub(crate) fn start(opened: OpenedStore) -> std::io::Result<Committer> {
        let queue = Arc::new(Shared::default());
        let writer = Writer { opened, shared: queue.clone() };
        let thread =
            std::thread::Builder::new().name("millrace-committer".to_owned()).spawn(move || writer.run())?;
        Ok(Committer { queue, thread: Some(thread) })
    }

    pub(crate) fn submit(&self, batches: impl IntoIterator<Item = (Batch, Reply)>) {
        let mut queue = self.queue.lock();
        if let Some(error) = queue.failed.clone() {
            drop(queue);
            batches.into_iter().for_each(|(_, reply)| reply.answer(Err(error.clone())));
            return;
        }
        queue.waiting.extend(batches);
        drop(queue);
        self.queue.wake.notify_one();
    }

    /// Waits until the batch is durable or was refused.
    pub(crate) fn commit(&self, batch: Batch) -> Committed {
        let (reply, answer) = sync_channel(1);
        self.submit([(batch, Reply::Caller(reply))]);
        answer.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Commits many batches at once, which share syncs. Waits for all of them.
    pub(crate) fn commit_all(&self, batches: Vec<Batch>) -> Vec<Committed> {
        let (replies, answers): (Vec<_>, Vec<_>) = batches
            .into_iter()
            .map(|batch| {
                let (reply, answer) = sync_channel(1);
                ((batch, Reply::Caller(reply)), answer)
            })
            .unzip();
        self.submit(replies);
        answers.into_iter().map(|answer| answer.recv().unwrap_or_else(|_| Err(ended()))).collect()
    }

    /// Returns the number of transactions so far, each with one sync, however many batches it held.
    pub(crate) fn commits_made(&self) -> u64 {
        self.queue.commits.load(Ordering::Relaxed)
    }

    pub(crate) fn listen(&self, mailbox: &Arc<Mailbox>) {
        let mut listeners = self.queue.listeners();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(mailbox));
    }
}

impl Drop for Committer {
    /// Writes what is still queued.
    fn drop(&mut self) {
        self.queue.lock().ended = true;
        self.queue.wake.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // The thread reports its own failures; `End` has reported a panic to every caller that waited.
            let _ = thread.join();
        }
    }
}

fn ended() -> StoreError {
    StoreError::Poisoned("the thread that writes has ended".into())
}

impl Reply {
    fn answer(self, committed: Committed) {
        match self {
            // A failed send means that the caller does not wait any more.
            Reply::Caller(reply) => drop(reply.send(committed)),
            Reply::Worker(mailbox, token) => mailbox.push(Mail::Input(worker_input(token, committed))),
        }
    }
}

/// Returns how a commit of a worker ended. Every failure except `TooLarge` leaves open whether the batch is written.
pub(super) fn worker_input(token: Token, committed: Committed) -> Input {
    match committed {
        Ok(outcome) => Input::Committed { token, outcome },
        Err(StoreError::TooLarge { bytes, max }) => Input::TooLarge { token, bytes, limit: max },
        Err(error) => Input::Failed { reason: error.to_string() },
    }
}

impl Shared {
    /// Locks the queue. The queue is consistent after every statement, so a poisoned mutex does no harm.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Weak<Mailbox>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Writer {
    opened: OpenedStore,
    shared: Arc<Shared>,
}

impl Writer {
    fn run(self) {
        let mut end = End { shared: &self.shared, error: ended() };
        if let Err(error) = self.write() {
            tracing::error!(%error, "the store failed: nothing is written any more");
            end.error = error;
        }
    }

    fn write(&self) -> Result<(), StoreError> {
        let mut maintain_at = Instant::now() + MAINTAIN_INTERVAL;
        let (mut batches, mut replies) = (Vec::new(), Vec::new());
        let (mut company, mut pause) = (false, RETRY_PAUSE_MIN);
        let mut low = self.low();
        loop {
            if company {
                // A caller that was just answered may ask again as soon as it gets a core: then this commit includes
                // it. If no thread is ready to run, yielding costs nothing, and a single caller never waits for others.
                std::thread::yield_now();
            }
            if !self.take(&mut batches, &mut replies, maintain_at) {
                return Ok(());
            }
            company = batches.len() > 1;
            if let Some(reason) = &low {
                let error = StoreError::NoSpace(reason.as_str().into());
                refuse(&mut batches, &mut replies, &error, adds);
            }
            if !batches.is_empty() {
                match self.commit(&mut batches, &mut replies) {
                    Err(error) if error.may_be_retried() => {
                        self.keep(&mut batches, &mut replies, error, &mut pause)?;
                    }
                    committed => {
                        committed?;
                        pause = RETRY_PAUSE_MIN;
                    }
                }
            }
            if Instant::now() >= maintain_at {
                let started = Instant::now();
                low = self.low();
                let more = self.maintain()?;
                let busy = !self.shared.lock().waiting.is_empty();
                maintain_at = Instant::now()
                    + match (more, busy) {
                        (false, _) => MAINTAIN_INTERVAL,
                        (true, false) => Duration::ZERO,
                        (true, true) => started.elapsed() * BUSY_PAUSE,
                    };
            }
        }
    }

    /// Waits for batches until `maintain_at`, then takes as many as a commit may hold. Returns false at the end.
    fn take(&self, batches: &mut Vec<Batch>, replies: &mut Vec<Reply>, maintain_at: Instant) -> bool {
        let wait = maintain_at.saturating_duration_since(Instant::now());
        let empty = |queue: &mut Queue| queue.waiting.is_empty() && !queue.ended;
        let (mut queue, _) = self
            .shared
            .wake
            .wait_timeout_while(self.shared.lock(), wait, empty)
            .unwrap_or_else(PoisonError::into_inner);
        let mut bytes = 0;
        while let Some((batch, _)) = queue.waiting.front() {
            bytes += batch.bytes();
            let full = batches.len() >= COMMIT_BATCHES_MAX || bytes > COMMIT_BYTES_MAX;
            if full && !batches.is_empty() {
                break;
            }
            let Some((batch, reply)) = queue.waiting.pop_front() else { break };
            batches.push(batch);
            replies.push(reply);
        }
        !(batches.is_empty() && queue.ended)
    }

    fn commit(&self, batches: &mut Vec<Batch>, replies: &mut Vec<Reply>) -> Result<(), StoreError> {
        let outcomes = match self.opened.store.commit(batches) {
            Err(error @ StoreError::TooLarge { .. }) => return self.commit_singly(batches, replies, &error),
            committed => committed?,
        };
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        batches.clear();
        let appended =
            |outcome: &Outcome| matches!(outcome, Outcome::Done(done) if !done.appended.is_empty());
        let news = outcomes.iter().any(appended);
        deliver(replies.drain(..).zip(outcomes));
        if news {
            self.shared.listeners().iter().filter_map(Weak::upgrade).for_each(|mailbox| mailbox.tell_news());
        }
        Ok(())
    }

    /// Puts the batches of a commit that wrote nothing back into the queue, and waits a while. Returns `Err` at the
    /// end, when nobody will try again.
    fn keep(
        &self,
        batches: &mut Vec<Batch>,
        replies: &mut Vec<Reply>,
        error: StoreError,
        pause: &mut Duration,
    ) -> Result<(), StoreError> {
        if *pause == RETRY_PAUSE_MIN {
            tracing::warn!(%error, "a commit left nothing");
        }
        if matches!(error, StoreError::NoSpace(_)) {
            refuse(batches, replies, &error, |_| true);
        }
        let mut queue = self.shared.lock();
        for kept in batches.drain(..).zip(replies.drain(..)).rev() {
            queue.waiting.push_front(kept);
        }
        let (queue, _) = self
            .shared
            .wake
            .wait_timeout_while(queue, *pause, |queue| !queue.ended)
            .unwrap_or_else(PoisonError::into_inner);
        *pause = (*pause * 2).min(RETRY_PAUSE_MAX);
        if queue.ended { Err(error) } else { Ok(()) }
    }

    /// Returns why nothing may be added to the store, if so.
    fn low(&self) -> Option<String> {
        self.opened.store.disk_use().and_then(|disk_use| disk_use.low())
    }

    /// Commits the batches one by one, because one is larger than a store must accept: the only failure that harms no
    /// other batch.
    fn commit_singly(
        &self,
        batches: &mut Vec<Batch>,
        replies: &mut Vec<Reply>,
        error: &StoreError,
    ) -> Result<(), StoreError> {
        if batches.len() == 1 {
            tracing::warn!(max = BATCH_BYTES_MAX, %error, "a batch is too large to be committed");
            batches.clear();
            replies.drain(..).for_each(|reply| reply.answer(Err(error.clone())));
            return Ok(());
        }
        let mut rest: VecDeque<(Batch, Reply)> = batches.drain(..).zip(replies.drain(..)).collect();
        while let Some((batch, reply)) = rest.pop_front() {
            batches.push(batch);
            replies.push(reply);
            if let Err(error) = self.commit(batches, replies) {
                // The caller of this function keeps the batches that were not committed.
                let (more_batches, more_replies): (Vec<_>, Vec<_>) = rest.into_iter().unzip();
                batches.extend(more_batches);
                replies.extend(more_replies);
                return Err(error);
            }
        }
        Ok(())
    }

    fn maintain(&self) -> Result<bool, StoreError> {
        if self.opened.store.is_served_elsewhere() {
            return Ok(false);
        }
        match self.opened.store.maintain(MAINTAIN_ROWS_MAX) {
            Ok(done) => Ok(done.more),
            Err(StoreError::Unreadable(cause)) => {
                tracing::warn!(
                    reason = cause.text(),
                    "housekeeping could not read the store, it will be tried again"
                );
                Ok(false)
            }
            Err(error) if error.may_be_retried() => {
                tracing::warn!(%error, "housekeeping left nothing, it will be tried again");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Delivers the outcomes; consecutive answers of a worker are put into its mailbox together.
fn deliver(answers: impl Iterator<Item = (Reply, Outcome)>) {
    let mut for_worker: Option<(Arc<Mailbox>, Vec<Mail>)> = None;
    for (reply, outcome) in answers {
        match reply {
            Reply::Worker(mailbox, token) => {
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

/// On drop, tells everybody who waits how the writer ended, however it ended.
struct End<'a> {
    shared: &'a Shared,
    error: StoreError,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.failed = Some(self.error.clone());
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        waiting.into_iter().for_each(|(_, reply)| reply.answer(Err(self.error.clone())));
    }
}
