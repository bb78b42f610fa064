//! The work that waits for the workers (requests and completions) and the choice of each thread's next job, behind one
//! lock.
//!
//! Completions come from the shell's own threads and are bounded by what the engine has asked for. Requests come from
//! outside. Each request first reserves its share of `room`, so their number and bytes are bounded and callers wait in
//! fair order. A single lock and condition variable replace channels: a turn takes everything that waits at once, an
//! edge hands over many requests at once, and no thread that is awake is woken.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use millrace_bus::Input;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Semaphore;

use crate::connection::Command;
use crate::handle::Ended;
use crate::settings::BrokerSettings;
use crate::workers;
use crate::writer::{Backlog, requests_max};

/// Inputs of a short turn, at most. A short turn runs before a commit that waits, because its result then joins the
/// commit. Before a longer turn the commit is started first, and the other thread is woken for the turn. A short turn
/// may also be run by the edge that sent a request.
const SHORT_TURN: usize = 16;
/// Turns in a row that may run before a commit that waits: requests that come while answers are sent still join that
/// commit.
const DEFERRED_COMMITS_MAX: u32 = 3;

#[derive(Debug)]
pub(crate) struct Inbox {
    queues: Mutex<Queues>,
    wake: Condvar,
    room: Semaphore,
    room_max: u32,
    requests_waiting: AtomicUsize,
}

#[derive(Debug)]
struct Queues {
    completions: Vec<Input>,
    requests: VecDeque<(Command, u32)>,
    ended: bool,
    retired: bool,
    deciding: bool,
    /// A thread is committing or doing maintenance. Stays true when the store has failed.
    writing: bool,
    /// Turns that were run before a commit that waits.
    deferred_commits: u32,
    /// The last attempt to commit wrote nothing: nothing is committed before this time.
    commit_at: Option<Instant>,
    /// When the engine must run again even if nothing happens.
    decide_at: Instant,
    /// When the writer has maintenance to do (work besides commits). After a commit, maintenance comes before the next one
    /// (`maintenance_next`), or a busy writer would never do it.
    maintenance_at: Instant,
    maintenance_next: bool,
    /// When each sleeping thread of the workers wakes by itself.
    idle_until: Vec<Instant>,
    /// Edges that are doing a job of the workers: the workers do not end before they have finished.
    inline_turns: usize,
    /// An empty turn that keeps the capacity of its vectors.
    spare: Turn,
}

/// A thread's next work.
#[derive(Debug)]
pub(crate) enum WorkerJob {
    Decide(Turn),
    Commit,
    /// The writer's work besides commits.
    Maintenance,
    /// Drop the owner.
    Retire,
    End,
}

/// The inputs of a turn, handled in this order.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) completions: Vec<Input>,
    pub(crate) requests: Vec<Command>,
}

impl Inbox {
    pub(crate) fn new(room_max: u32) -> Inbox {
        let now = Instant::now();
        Inbox {
            queues: Mutex::new(Queues {
                completions: Vec::new(),
                requests: VecDeque::new(),
                ended: false,
                retired: false,
                deciding: false,
                writing: false,
                deferred_commits: 0,
                commit_at: None,
                // The engine may have work from before the restart.
                decide_at: now,
                maintenance_at: now,
                maintenance_next: false,
                idle_until: Vec::with_capacity(workers::THREADS),
                inline_turns: 0,
                spare: Turn::default(),
            }),
            wake: Condvar::new(),
            room: Semaphore::new(room_max as usize),
            room_max,
            requests_waiting: AtomicUsize::new(0),
        }
    }

    /// Waits for a share of the room; then hand the requests over with [`Inbox::push`]. A single request larger than
    /// the whole room waits until the room is empty; several together must fit.
    pub(crate) async fn reserve(&self, units: u32) -> Result<(), Ended> {
        self.room.acquire_many(units.min(self.room_max)).await.map_err(|_| Ended)?.forget();
        Ok(())
    }

    /// Adds a request without reserving room: for requests that must not wait. At most two for each connection, and one
    /// stop.
    pub(crate) fn tell(&self, command: Command) -> Result<(), Ended> {
        self.push(std::iter::once((command, 0)))
    }

    /// Adds requests. The number beside each is its part of the reserved share, released when a turn takes it.
    pub(crate) fn push(&self, commands: impl Iterator<Item = (Command, u32)>) -> Result<(), Ended> {
        let mut queues = self.lock();
        if queues.ended {
            return Err(Ended);
        }
        queues.requests.extend(commands);
        self.requests_waiting.store(queues.requests.len(), Ordering::Relaxed);
        self.wake_for_a_turn(queues);
        Ok(())
    }

    /// Like [`Inbox::push`], for an edge that can run the engine itself: returns the turn if no thread is deciding and
    /// the turn is short. Waking a thread of the workers would cost more than the turn. A caller that gets a turn must end
    /// with [`Inbox::inline_finished`].
    pub(crate) fn push_or_start_turn(
        &self,
        commands: impl Iterator<Item = (Command, u32)>,
        backlog: &Backlog,
        settings: &BrokerSettings,
    ) -> Result<Option<Turn>, Ended> {
        let mut queues = self.lock();
        if queues.ended {
            return Err(Ended);
        }
        queues.requests.extend(commands);
        let turn = self.short_turn(&mut queues, backlog, settings);
        if turn.is_some() {
            queues.inline_turns += 1;
            return Ok(turn);
        }
        self.requests_waiting.store(queues.requests.len(), Ordering::Relaxed);
        self.wake_for_a_turn(queues);
        Ok(None)
    }

    fn short_turn(&self, queues: &mut Queues, backlog: &Backlog, settings: &BrokerSettings) -> Option<Turn> {
        let requests_max = requests_max(backlog, settings);
        let short = queues.requests.len().max(queues.completions.len()) <= SHORT_TURN;
        (!queues.deciding && !queues.ended && short && requests_max > 0)
            .then(|| self.start_turn(queues, requests_max))
    }

    /// The next turn for an edge that has just run one: what came meanwhile, if it is short.
    pub(crate) fn next_short(&self, backlog: &Backlog, settings: &BrokerSettings) -> Option<Turn> {
        let mut queues = self.lock();
        let waits = !queues.completions.is_empty() || !queues.requests.is_empty();
        waits.then(|| self.short_turn(&mut queues, backlog, settings)).flatten()
    }

    /// Whether an edge that has run a turn is to commit as well. Only if no other thread is awake and there is exactly
    /// one batch: a lone publisher gets its answer without any other thread, and with several publishers the workers, once
    /// awake, gather their batches. Otherwise wakes the thread that is needed.
    pub(crate) fn begin_inline_commit(&self, backlog: &Backlog, settings: &BrokerSettings) -> bool {
        let mut queues = self.lock();
        let alone = queues.idle_until.len() == workers::THREADS && queues.inline_turns == 1 && !queues.ended;
        let idle = !queues.deciding && queues.requests.is_empty() && queues.completions.is_empty();
        let can_write = !queues.writing && queues.commit_at.is_none();
        let commits = settings.inline_commits && alone && idle && can_write && backlog.waiting() == 1;
        if commits {
            queues.writing = true;
        } else {
            self.wake_if_needed(queues, backlog, settings);
        }
        commits
    }

    /// The commit of an edge is over. Returns the turn with its outcome, unless another thread has that.
    pub(crate) fn inline_commit_done(&self, backlog: &Backlog, settings: &BrokerSettings) -> Option<Turn> {
        let mut queues = self.lock();
        queues.writing = false;
        queues.maintenance_next = true;
        self.short_turn(&mut queues, backlog, settings)
    }

    /// Wakes the thread that is needed for what is left.
    pub(crate) fn wake_for_the_rest(&self, backlog: &Backlog, settings: &BrokerSettings) {
        self.wake_if_needed(self.lock(), backlog, settings);
    }

    /// An edge has finished its job of the workers, with or without a panic.
    pub(crate) fn inline_finished(&self) {
        let mut queues = self.lock();
        queues.inline_turns -= 1;
        let ended = queues.ended;
        drop(queues);
        if ended {
            self.wake.notify_all();
        }
    }

    pub(crate) fn complete(&self, inputs: impl IntoIterator<Item = Input>) {
        let mut queues = self.lock();
        queues.completions.extend(inputs);
        self.wake_for_a_turn(queues);
    }

    /// Adds completions from the thread that commits, which is awake and looks for its next job: so no thread is woken.
    pub(crate) fn complete_from_writer(&self, inputs: impl IntoIterator<Item = Input>) {
        self.lock().completions.extend(inputs);
    }

    /// Wakes a thread for a turn, unless one is deciding, which looks again afterwards.
    fn wake_for_a_turn(&self, queues: MutexGuard<'_, Queues>) {
        let needed = !queues.idle_until.is_empty() && !queues.deciding;
        drop(queues);
        if needed {
            self.wake.notify_one();
        }
    }

    /// Waits for the next job. Requests stay in their queue while the backlog is full; a commit that ends brings
    /// completions, and with them another look.
    pub(crate) fn next(&self, backlog: &Backlog, settings: &BrokerSettings) -> WorkerJob {
        let mut queues = self.lock();
        loop {
            let now = Instant::now();
            if let Some(job) = self.pick(&mut queues, backlog, settings, now) {
                self.wake_if_needed(queues, backlog, settings);
                return job;
            }
            let mut until = now + Duration::from_millis(settings.wait_ms_max);
            if !queues.deciding {
                until = until.min(queues.decide_at);
            }
            if !queues.writing {
                until = until.min(queues.maintenance_at).min(queues.commit_at.unwrap_or(until));
            }
            queues.idle_until.push(until);
            self.wake.wait_until(&mut queues, until);
            // If two threads sleep until the same time, it does not matter which one is removed.
            if let Some(own) = queues.idle_until.iter().position(|idle_until| *idle_until == until) {
                queues.idle_until.swap_remove(own);
            }
        }
    }

    fn pick(
        &self,
        queues: &mut Queues,
        backlog: &Backlog,
        settings: &BrokerSettings,
        now: Instant,
    ) -> Option<WorkerJob> {
        // After the end there is no pause before a retry: one last attempt is made.
        let may_commit = queues.ended || queues.commit_at.is_none_or(|at| now >= at);
        let can_write = !queues.writing && backlog.is_waiting() && may_commit;
        if queues.ended {
            if queues.inline_turns > 0 {
                return None;
            }
            if !queues.deciding && !queues.retired {
                queues.retired = true;
                return Some(WorkerJob::Retire);
            }
            queues.writing |= can_write;
            return Some(if can_write { WorkerJob::Commit } else { WorkerJob::End });
        }
        let requests_max = requests_max(backlog, settings);
        let has_requests = requests_max > 0 && !queues.requests.is_empty();
        let turn = has_requests || now >= queues.decide_at || !queues.completions.is_empty();
        let long = queues.requests.len().max(queues.completions.len()) > SHORT_TURN;
        if !queues.deciding
            && turn
            && !(can_write && (queues.deferred_commits >= DEFERRED_COMMITS_MAX || long))
        {
            queues.deferred_commits = if can_write { queues.deferred_commits + 1 } else { 0 };
            return Some(WorkerJob::Decide(self.start_turn(queues, requests_max)));
        }
        let maintenance = !queues.writing && now >= queues.maintenance_at;
        if maintenance && (queues.maintenance_next || !can_write) {
            queues.writing = true;
            return Some(WorkerJob::Maintenance);
        }
        if can_write {
            queues.writing = true;
            queues.deferred_commits = 0;
            return Some(WorkerJob::Commit);
        }
        None
    }

    fn start_turn(&self, queues: &mut Queues, requests_max: usize) -> Turn {
        queues.deciding = true;
        let mut turn = std::mem::take(&mut queues.spare);
        std::mem::swap(&mut turn.completions, &mut queues.completions);
        let count = requests_max.min(queues.requests.len());
        let mut freed = 0;
        turn.requests.extend(queues.requests.drain(..count).map(|(command, units)| {
            freed += units.min(self.room_max) as usize;
            command
        }));
        self.requests_waiting.store(queues.requests.len(), Ordering::Relaxed);
        if freed > 0 {
            self.room.add_permits(freed);
        }
        turn
    }

    /// Wakes a sleeping thread if there is a job left for it, or if it would wake too late. Not for maintenance while a
    /// thread decides, because that thread looks for maintenance afterwards: waking a thread only to set another alarm costs
    /// as much as a turn.
    fn wake_if_needed(&self, queues: MutexGuard<'_, Queues>, backlog: &Backlog, settings: &BrokerSettings) {
        let has_requests = !queues.requests.is_empty() && requests_max(backlog, settings) > 0;
        let turn = !queues.deciding && (has_requests || !queues.completions.is_empty());
        let first = queues.idle_until.iter().min();
        let late = first.is_some_and(|first| {
            let maintenance_at = queues.maintenance_at.min(queues.commit_at.unwrap_or(queues.maintenance_at));
            !queues.deciding && (queues.decide_at < *first || (!queues.writing && maintenance_at < *first))
        });
        let write = !queues.writing
            && queues.deferred_commits == 0
            && queues.commit_at.is_none()
            && backlog.is_waiting();
        let needed = first.is_some() && (queues.ended || turn || late || write);
        drop(queues);
        if needed {
            self.wake.notify_one();
        }
    }

    /// A turn is over; `wait` is how long the engine can do without another one.
    pub(crate) fn decided(&self, turn: Turn, wait: Duration) {
        let mut queues = self.lock();
        queues.deciding = false;
        queues.decide_at = Instant::now() + wait;
        queues.spare = turn;
    }

    /// A commit is over.
    pub(crate) fn wrote(&self) {
        let mut queues = self.lock();
        queues.writing = false;
        queues.commit_at = None;
        queues.maintenance_next = true;
    }

    /// An attempt to commit wrote nothing: the next one is due at `at`. Maintenance goes on meanwhile, because it may free
    /// space.
    pub(crate) fn wrote_nothing(&self, at: Instant) {
        let mut queues = self.lock();
        queues.writing = false;
        queues.commit_at = Some(at);
    }

    /// Maintenance is done; it is next due at `until`.
    pub(crate) fn maintenance_done(&self, until: Instant) {
        let mut queues = self.lock();
        queues.writing = false;
        queues.maintenance_at = until;
        queues.maintenance_next = false;
    }

    /// Accepts no more requests. Those still queued are dropped, which tells their callers.
    pub(crate) fn end(&self) {
        let mut queues = self.lock();
        queues.ended = true;
        let dropped = std::mem::take(&mut queues.requests);
        drop(queues);
        drop(dropped);
        self.room.close();
        self.wake.notify_all();
    }

    pub(crate) fn room_max(&self) -> u32 {
        self.room_max
    }

    pub(crate) fn requests_waiting(&self) -> usize {
        self.requests_waiting.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock()
    }
}
