//! The work that waits for the workers (requests and completions) behind one lock, with the schedule that gives each
//! thread its next job (`schedule.rs`).
//!
//! Completions come from the shell's own threads and are bounded by what the engine has asked for. Requests come from
//! outside. Each request first reserves its share of `room`, so their number and bytes are bounded and callers wait in
//! fair order. A single lock and condition variable replace channels: a turn takes everything that waits at once, an
//! edge hands over many requests at once, and no thread that is awake is woken.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::schedule::{Handover, Happened, Job, Load, Schedule, ScheduleLimits, Step, Wake};
use crate::sync::{self, Condvar, Mutex, MutexGuard};

/// The broker has ended: nothing will be answered any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the broker has ended")]
pub struct Ended;

/// How full the writer's queue is. Exact for a thread that holds the inbox's lock: threads that add or take batches
/// acquire that lock afterwards.
pub(crate) trait BacklogLevel {
    /// Returns the number of batches that no commit has taken yet.
    fn waiting(&self) -> usize;
    /// Returns false while the bounds are exceeded.
    fn accepts_requests(&self) -> bool;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct InboxLimits {
    /// The room for requests, in units.
    pub(crate) room_max: u32,
    /// Requests of one turn.
    pub(crate) turn_requests_max: usize,
}

/// `R` is the type of requests, `C` of completions, `B` of the writer's queue.
#[derive(Debug)]
pub(crate) struct Inbox<R, C, B> {
    queues: Mutex<Queues<R, C>>,
    wake: Condvar,
    backlog: B,
    room: Semaphore,
    limits: InboxLimits,
    requests_waiting: AtomicUsize,
}

#[derive(Debug)]
struct Queues<R, C> {
    completions: Vec<C>,
    requests: VecDeque<(R, u32)>,
    schedule: Schedule,
    /// An empty turn that keeps the capacity of its vectors.
    spare: Turn<R, C>,
}

/// A thread's next work.
#[derive(Debug)]
pub(crate) enum WorkerJob<R, C> {
    Decide(Turn<R, C>),
    Commit,
    /// The writer's work besides commits.
    Maintenance,
    /// Drop the owner.
    Retire,
    End,
}

/// The work that is left to an edge that has added requests.
#[derive(Debug)]
pub(crate) enum EdgeWork<R, C> {
    /// The edge runs this turn and must end with [`Inbox::inline_finished`].
    Turn(Turn<R, C>),
    /// The edge lets other tasks go on, and must end with [`Inbox::end_gathering`] or [`Inbox::gathering_dropped`].
    Gather,
    Nothing,
}

/// The inputs of a turn, handled in this order.
#[derive(Debug)]
pub(crate) struct Turn<R, C> {
    pub(crate) completions: Vec<C>,
    pub(crate) requests: Vec<R>,
}

impl<R, C> Default for Turn<R, C> {
    fn default() -> Self {
        Turn { completions: Vec::new(), requests: Vec::new() }
    }
}

impl<R, C, B: BacklogLevel> Inbox<R, C, B> {
    pub(crate) fn new(limits: InboxLimits, schedule: ScheduleLimits, backlog: B) -> Self {
        Inbox {
            queues: Mutex::new(Queues {
                completions: Vec::new(),
                requests: VecDeque::new(),
                schedule: Schedule::new(schedule, sync::now()),
                spare: Turn::default(),
            }),
            wake: Condvar::new(),
            backlog,
            room: Semaphore::new(limits.room_max as usize),
            limits,
            requests_waiting: AtomicUsize::new(0),
        }
    }

    /// Waits for a share of the room; then hand the requests over with [`Inbox::push`]. A single request larger than
    /// the whole room waits until the room is empty; several together must fit.
    pub(crate) async fn reserve(&self, units: u32) -> Result<(), Ended> {
        self.room.acquire_many(units.min(self.limits.room_max)).await.map_err(|_| Ended)?.forget();
        Ok(())
    }

    /// Adds a request without reserving room: for requests that must not wait. At most two for each connection, and one
    /// stop.
    pub(crate) fn tell(&self, request: R) -> Result<(), Ended> {
        self.push(std::iter::once((request, 0)))
    }

    /// Adds requests. The number beside each is its part of the reserved share, released when a turn takes it.
    pub(crate) fn push(&self, requests: impl Iterator<Item = (R, u32)>) -> Result<(), Ended> {
        let mut queues = self.lock();
        if queues.schedule.has_ended() {
            return Err(Ended);
        }
        queues.requests.extend(requests);
        self.arrived(queues);
        Ok(())
    }

    /// Like [`Inbox::push`], for an edge that can run the engine itself, now or after it has gathered.
    pub(crate) fn push_from_edge(
        &self,
        requests: impl Iterator<Item = (R, u32)>,
        can_gather: bool,
    ) -> Result<EdgeWork<R, C>, Ended> {
        let mut queues = self.lock();
        if queues.schedule.has_ended() {
            return Err(Ended);
        }
        queues.requests.extend(requests);
        let load = self.load(&queues);
        let handover = queues.schedule.hand_over(&load, can_gather);
        if handover == Handover::Turn {
            return Ok(EdgeWork::Turn(self.take_turn(&mut queues, &load)));
        }
        self.requests_waiting.store(queues.requests.len(), Ordering::Relaxed);
        match handover {
            Handover::Other(wake) => self.unlock_and_wake(queues, wake),
            Handover::Turn | Handover::Gather => drop(queues),
        }
        Ok(if handover == Handover::Gather { EdgeWork::Gather } else { EdgeWork::Nothing })
    }

    /// An edge has gathered. Returns the turn if the edge is to run it; it must then end with
    /// [`Inbox::inline_finished`].
    pub(crate) fn end_gathering(&self) -> Option<Turn<R, C>> {
        let mut queues = self.lock();
        let load = self.load(&queues);
        if queues.schedule.end_gathering(&load) {
            return Some(self.take_turn(&mut queues, &load));
        }
        self.wake_for_rest_of(queues);
        None
    }

    /// An edge that was to look again after gathering will not.
    pub(crate) fn gathering_dropped(&self) {
        self.report(Happened::GatheringDropped);
    }

    /// The next turn for an edge that has just run one: what came meanwhile, if it is short.
    pub(crate) fn next_inline_turn(&self) -> Option<Turn<R, C>> {
        let mut queues = self.lock();
        let load = self.load(&queues);
        queues.schedule.next_inline_turn(&load).then(|| self.take_turn(&mut queues, &load))
    }

    /// Whether an edge that has run a turn is to commit as well. If not, wakes the thread that is needed.
    pub(crate) fn begin_inline_commit(&self) -> bool {
        let mut queues = self.lock();
        let load = self.load(&queues);
        let begins = queues.schedule.begin_inline_commit(&load);
        if !begins {
            self.wake_for_rest_of(queues);
        }
        begins
    }

    /// The commit of an edge, begun at that time, is over. Returns the turn with its outcome, unless another thread has
    /// that.
    pub(crate) fn inline_commit_done(&self, begun: Instant) -> Option<Turn<R, C>> {
        let took = sync::now().saturating_duration_since(begun);
        let mut queues = self.lock();
        queues.schedule.report(Happened::Committed { took });
        let load = self.load(&queues);
        queues.schedule.next_inline_turn(&load).then(|| self.take_turn(&mut queues, &load))
    }

    /// Wakes the thread that is needed for what is left.
    pub(crate) fn wake_for_rest(&self) {
        self.wake_for_rest_of(self.lock());
    }

    /// An edge has finished its jobs of the workers, with or without a panic.
    pub(crate) fn inline_finished(&self) {
        self.report(Happened::InlineFinished);
    }

    pub(crate) fn complete(&self, inputs: impl IntoIterator<Item = C>) {
        let mut queues = self.lock();
        queues.completions.extend(inputs);
        let wake = queues.schedule.report(Happened::Arrived);
        self.unlock_and_wake(queues, wake);
    }

    /// Adds completions from the thread that commits, which is awake and looks for its next job: so no thread is woken.
    pub(crate) fn complete_from_writer(&self, inputs: impl IntoIterator<Item = C>) {
        self.lock().completions.extend(inputs);
    }

    /// Waits for the next job. Requests stay in their queue while the backlog is full; a commit that ends brings
    /// completions, and with them another look.
    pub(crate) fn next(&self) -> WorkerJob<R, C> {
        let mut queues = self.lock();
        loop {
            let load = self.load(&queues);
            let job = match queues.schedule.next(&load, sync::now()) {
                Step::Do(job) => job,
                Step::SleepUntil(until) => {
                    self.wake.wait_until(&mut queues, until);
                    queues.schedule.report(Happened::Woke { until });
                    continue;
                }
            };
            let job = match job {
                Job::Decide => WorkerJob::Decide(self.take_turn(&mut queues, &load)),
                Job::Commit => WorkerJob::Commit,
                Job::Maintenance => WorkerJob::Maintenance,
                Job::Retire => WorkerJob::Retire,
                Job::End => WorkerJob::End,
            };
            self.wake_for_rest_of(queues);
            return job;
        }
    }

    /// A turn is over; `wait` is how long the engine can do without another one.
    pub(crate) fn decided(&self, turn: Turn<R, C>, wait: Duration) {
        let mut queues = self.lock();
        queues.schedule.report(Happened::Decided { next_at: sync::now() + wait });
        queues.spare = turn;
    }

    /// A commit, begun at that time, is over.
    pub(crate) fn wrote(&self, begun: Instant) {
        self.report(Happened::Committed { took: sync::now().saturating_duration_since(begun) });
    }

    /// An attempt to commit wrote nothing: the next one is due at `retry_at`.
    pub(crate) fn wrote_nothing(&self, retry_at: Instant) {
        self.report(Happened::WroteNothing { retry_at });
    }

    /// Maintenance is done; it is next due at `next_at`.
    pub(crate) fn maintenance_done(&self, next_at: Instant) {
        self.report(Happened::Maintained { next_at });
    }

    /// Maintenance is to be done as soon as the writer has a moment. For any thread.
    pub(crate) fn want_maintenance(&self) {
        self.report(Happened::MaintenanceWanted);
    }

    /// Accepts no more requests. Those still queued are dropped, which tells their callers.
    pub(crate) fn end(&self) {
        let mut queues = self.lock();
        let wake = queues.schedule.report(Happened::Ended);
        let dropped = std::mem::take(&mut queues.requests);
        drop(queues);
        drop(dropped);
        self.room.close();
        self.notify(wake);
    }

    pub(crate) fn room_max(&self) -> u32 {
        self.limits.room_max
    }

    pub(crate) fn requests_waiting(&self) -> usize {
        self.requests_waiting.load(Ordering::Relaxed)
    }

    /// Requests were added.
    fn arrived(&self, mut queues: MutexGuard<'_, Queues<R, C>>) {
        self.requests_waiting.store(queues.requests.len(), Ordering::Relaxed);
        let wake = queues.schedule.report(Happened::Arrived);
        self.unlock_and_wake(queues, wake);
    }

    fn take_turn(&self, queues: &mut Queues<R, C>, load: &Load) -> Turn<R, C> {
        let mut turn = std::mem::take(&mut queues.spare);
        std::mem::swap(&mut turn.completions, &mut queues.completions);
        let requests_max = if load.accepts_requests { self.limits.turn_requests_max } else { 0 };
        let count = requests_max.min(queues.requests.len());
        let mut freed = 0;
        turn.requests.extend(queues.requests.drain(..count).map(|(request, units)| {
            freed += units.min(self.limits.room_max) as usize;
            request
        }));
        self.requests_waiting.store(queues.requests.len(), Ordering::Relaxed);
        if freed > 0 {
            self.room.add_permits(freed);
        }
        turn
    }

    fn load(&self, queues: &Queues<R, C>) -> Load {
        Load {
            requests: queues.requests.len(),
            completions: queues.completions.len(),
            batches: self.backlog.waiting(),
            accepts_requests: self.backlog.accepts_requests(),
        }
    }

    fn report(&self, happened: Happened) {
        let mut queues = self.lock();
        let wake = queues.schedule.report(happened);
        self.unlock_and_wake(queues, wake);
    }

    fn wake_for_rest_of(&self, queues: MutexGuard<'_, Queues<R, C>>) {
        let wake = queues.schedule.wake_for_rest(&self.load(&queues));
        self.unlock_and_wake(queues, wake);
    }

    /// Unlocks first: a thread that is woken under the lock would only wait for it.
    fn unlock_and_wake(&self, queues: MutexGuard<'_, Queues<R, C>>, wake: Option<Wake>) {
        drop(queues);
        self.notify(wake);
    }

    fn notify(&self, wake: Option<Wake>) {
        if let Some(wake) = wake {
            sync::notify(&self.wake, wake);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queues<R, C>> {
        self.queues.lock()
    }
}
