//! What waits for the crew, and who does what: lanes and jobs behind one lock.
//!
//! Completions come from the shell's own threads and are bounded by what the engine has asked for. Requests come from
//! outside; each first gets its share of `room`, so their number and bytes are bounded and askers wait in fair order.
//! One lock and one condition variable instead of channels: a turn takes everything there is at once, an edge hands
//! over many requests at once, and nobody is woken who is awake.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millrace_bus::Input;
use tokio::sync::Semaphore;

use crate::crew;
use crate::handle::Ended;
use crate::link::Asked;
use crate::settings::BrokerSettings;
use crate::writer::Backlog;

/// A turn with no more inputs than this comes before a commit that waits: it is short, and what it decides joins the
/// commit. With more the disk is set to work first, and the other thread is woken for the turn. A short one is also done
/// by the edge that asked.
const SHORT_TURN: usize = 16;
/// Turns let in before a commit that waits, one behind the other: what comes while answers leave still joins it.
const PUT_OFF_MAX: u32 = 3;

#[derive(Debug)]
pub(crate) struct Inbox {
    lanes: Mutex<Lanes>,
    wake: Condvar,
    room: Semaphore,
    room_max: u32,
    requests_waiting: AtomicUsize,
}

#[derive(Debug)]
struct Lanes {
    completions: Vec<Input>,
    requests: VecDeque<(Asked, u32)>,
    ended: bool,
    retired: bool,
    deciding: bool,
    /// Stays true when the store has failed.
    writing: bool,
    /// Turns that were let in before a commit that waits.
    put_off: u32,
    /// Not before then is anything committed: the last attempt left nothing.
    commit_at: Option<Instant>,
    /// When the engine must be asked again even if nothing happens.
    decide_at: Instant,
    /// When the writer has something to do besides commits; after a commit that comes first, or a busy writer would
    /// never get to it.
    chores_at: Instant,
    chores_next: bool,
    /// When each thread of the crew that sleeps wakes by itself.
    sleepers: Vec<Instant>,
    /// Edges that do a job of the crew's just now: the crew does not end before them.
    helpers: usize,
    /// An empty turn whose vectors have room already.
    spare: Turn,
}

/// What a thread is to do next.
#[derive(Debug)]
pub(crate) enum Job {
    Decide(Turn),
    Commit,
    /// What the writer does besides commits.
    Chores,
    /// The owner is to be dropped.
    Retire,
    End,
}

/// What one turn has to handle, in this order.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) completions: Vec<Input>,
    pub(crate) requests: Vec<Asked>,
}

impl Inbox {
    pub(crate) fn new(room_max: u32) -> Inbox {
        let now = Instant::now();
        Inbox {
            lanes: Mutex::new(Lanes {
                completions: Vec::new(),
                requests: VecDeque::new(),
                ended: false,
                retired: false,
                deciding: false,
                writing: false,
                put_off: 0,
                commit_at: None,
                // The engine may have work from before the restart.
                decide_at: now,
                chores_at: now,
                chores_next: false,
                sleepers: Vec::with_capacity(crew::THREADS),
                helpers: 0,
                spare: Turn::default(),
            }),
            wake: Condvar::new(),
            room: Semaphore::new(room_max as usize),
            room_max,
            requests_waiting: AtomicUsize::new(0),
        }
    }

    /// Waits for a share of the room; hand over what it is for with [`Inbox::push`]. One request larger than
    /// the whole room waits until it is empty; several together must fit.
    pub(crate) async fn reserve(&self, units: u32) -> Result<(), Ended> {
        self.room.acquire_many(units.min(self.room_max)).await.map_err(|_| Ended)?.forget();
        Ok(())
    }

    /// For what must not wait: at most two of them per connection, and one stop.
    pub(crate) fn tell(&self, asked: Asked) -> Result<(), Ended> {
        self.push(std::iter::once((asked, 0)))
    }

    /// What stands beside each request is its part of the reserved share, given back when a turn takes it.
    pub(crate) fn push(&self, asked: impl Iterator<Item = (Asked, u32)>) -> Result<(), Ended> {
        let mut lanes = self.lock();
        if lanes.ended {
            return Err(Ended);
        }
        lanes.requests.extend(asked);
        self.requests_waiting.store(lanes.requests.len(), Ordering::Relaxed);
        self.wake_for_a_turn(lanes);
        Ok(())
    }

    /// The same, for an edge that can decide itself: it gets the turn if nobody decides and it is short. Waking a thread
    /// of the crew would cost more than the turn. Whoever gets one must end with [`Inbox::helped`].
    pub(crate) fn push_or_take(
        &self,
        asked: impl Iterator<Item = (Asked, u32)>,
        backlog: &Backlog,
        settings: &BrokerSettings,
    ) -> Result<Option<Turn>, Ended> {
        let mut lanes = self.lock();
        if lanes.ended {
            return Err(Ended);
        }
        lanes.requests.extend(asked);
        let turn = self.short_turn(&mut lanes, backlog, settings);
        if turn.is_some() {
            lanes.helpers += 1;
            return Ok(turn);
        }
        self.requests_waiting.store(lanes.requests.len(), Ordering::Relaxed);
        self.wake_for_a_turn(lanes);
        Ok(None)
    }

    fn short_turn(&self, lanes: &mut Lanes, backlog: &Backlog, settings: &BrokerSettings) -> Option<Turn> {
        let requests_max = backlog.requests_max(settings);
        let short = lanes.requests.len().max(lanes.completions.len()) <= SHORT_TURN;
        (!lanes.deciding && !lanes.ended && short && requests_max > 0).then(|| self.take(lanes, requests_max))
    }

    /// The next turn, for an edge that has just done one: what came meanwhile, if it is short.
    pub(crate) fn next_short(&self, backlog: &Backlog, settings: &BrokerSettings) -> Option<Turn> {
        let mut lanes = self.lock();
        let waits = !lanes.completions.is_empty() || !lanes.requests.is_empty();
        waits.then(|| self.short_turn(&mut lanes, backlog, settings)).flatten()
    }

    /// For an edge that has decided: whether it is to commit as well. Only when nobody else is awake and there is one
    /// batch to commit: a lone publisher gets its answer without any other thread, and with more of them the crew, once
    /// it is awake, gathers. Otherwise whoever is needed is woken.
    pub(crate) fn commit_alone(&self, backlog: &Backlog, settings: &BrokerSettings) -> bool {
        let mut lanes = self.lock();
        let alone = lanes.sleepers.len() == crew::THREADS && lanes.helpers == 1 && !lanes.ended;
        let idle = !lanes.deciding && lanes.requests.is_empty() && lanes.completions.is_empty();
        let can_write = !lanes.writing && lanes.commit_at.is_none();
        let commits = alone && idle && can_write && backlog.waiting() == 1;
        if commits {
            lanes.writing = true;
        } else {
            self.share(lanes, backlog, settings);
        }
        commits
    }

    /// The commit of an edge is over; with the turn it brought, unless somebody else has that.
    pub(crate) fn wrote_alone(&self, backlog: &Backlog, settings: &BrokerSettings) -> Option<Turn> {
        let mut lanes = self.lock();
        lanes.writing = false;
        lanes.chores_next = true;
        self.short_turn(&mut lanes, backlog, settings)
    }

    /// Wakes whoever is needed for what is left.
    pub(crate) fn leave(&self, backlog: &Backlog, settings: &BrokerSettings) {
        self.share(self.lock(), backlog, settings);
    }

    /// An edge does nothing of the crew's any more, however its help ended.
    pub(crate) fn helped(&self) {
        let mut lanes = self.lock();
        lanes.helpers -= 1;
        let ended = lanes.ended;
        drop(lanes);
        if ended {
            self.wake.notify_all();
        }
    }

    pub(crate) fn complete(&self, inputs: impl IntoIterator<Item = Input>) {
        let mut lanes = self.lock();
        lanes.completions.extend(inputs);
        self.wake_for_a_turn(lanes);
    }

    /// From the thread that commits: it is awake and looks for its next job.
    pub(crate) fn complete_own(&self, inputs: impl IntoIterator<Item = Input>) {
        self.lock().completions.extend(inputs);
    }

    /// Whoever is deciding looks again afterwards.
    fn wake_for_a_turn(&self, lanes: MutexGuard<'_, Lanes>) {
        let needed = !lanes.sleepers.is_empty() && !lanes.deciding;
        drop(lanes);
        if needed {
            self.wake.notify_one();
        }
    }

    /// Waits for something to do. Requests are left where they are while the backlog is full; a commit that ends
    /// brings completions, and with them another look.
    pub(crate) fn next(&self, backlog: &Backlog, settings: &BrokerSettings) -> Job {
        let mut lanes = self.lock();
        loop {
            let now = Instant::now();
            if let Some(job) = self.pick(&mut lanes, backlog, settings, now) {
                self.share(lanes, backlog, settings);
                return job;
            }
            let mut until = now + Duration::from_millis(settings.wait_ms_max);
            if !lanes.deciding {
                until = until.min(lanes.decide_at);
            }
            if !lanes.writing {
                until = until.min(lanes.chores_at).min(lanes.commit_at.unwrap_or(until));
            }
            lanes.sleepers.push(until);
            let wait = until.saturating_duration_since(now);
            let woken = self.wake.wait_timeout(lanes, wait).unwrap_or_else(PoisonError::into_inner);
            lanes = woken.0;
            // Whose of two equal ones it is makes no difference.
            if let Some(own) = lanes.sleepers.iter().position(|sleeper| *sleeper == until) {
                lanes.sleepers.swap_remove(own);
            }
        }
    }

    fn pick(
        &self,
        lanes: &mut Lanes,
        backlog: &Backlog,
        settings: &BrokerSettings,
        now: Instant,
    ) -> Option<Job> {
        // At the end there is no time for another pause: one last attempt.
        let may_commit = lanes.ended || lanes.commit_at.is_none_or(|at| now >= at);
        let can_write = !lanes.writing && backlog.is_waiting() && may_commit;
        if lanes.ended {
            if lanes.helpers > 0 {
                return None;
            }
            if !lanes.deciding && !lanes.retired {
                lanes.retired = true;
                return Some(Job::Retire);
            }
            lanes.writing |= can_write;
            return Some(if can_write { Job::Commit } else { Job::End });
        }
        let requests_max = backlog.requests_max(settings);
        let asked = requests_max > 0 && !lanes.requests.is_empty();
        let turn = asked || now >= lanes.decide_at || !lanes.completions.is_empty();
        let long = lanes.requests.len().max(lanes.completions.len()) > SHORT_TURN;
        if !lanes.deciding && turn && !(can_write && (lanes.put_off >= PUT_OFF_MAX || long)) {
            lanes.put_off = if can_write { lanes.put_off + 1 } else { 0 };
            return Some(Job::Decide(self.take(lanes, requests_max)));
        }
        let chores = !lanes.writing && now >= lanes.chores_at;
        if chores && (lanes.chores_next || !can_write) {
            lanes.writing = true;
            return Some(Job::Chores);
        }
        if can_write {
            lanes.writing = true;
            lanes.put_off = 0;
            return Some(Job::Commit);
        }
        None
    }

    fn take(&self, lanes: &mut Lanes, requests_max: usize) -> Turn {
        lanes.deciding = true;
        let mut turn = std::mem::take(&mut lanes.spare);
        std::mem::swap(&mut turn.completions, &mut lanes.completions);
        let count = requests_max.min(lanes.requests.len());
        let mut freed = 0;
        turn.requests.extend(lanes.requests.drain(..count).map(|(asked, units)| {
            freed += units.min(self.room_max) as usize;
            asked
        }));
        self.requests_waiting.store(lanes.requests.len(), Ordering::Relaxed);
        if freed > 0 {
            self.room.add_permits(freed);
        }
        turn
    }

    /// Wakes a sleeper if there is a job left for it, or if it would wake too late. Whoever decides looks for chores
    /// itself afterwards: to be woken only to set another alarm costs as much as a turn.
    fn share(&self, lanes: MutexGuard<'_, Lanes>, backlog: &Backlog, settings: &BrokerSettings) {
        let asked = !lanes.requests.is_empty() && backlog.requests_max(settings) > 0;
        let turn = !lanes.deciding && (asked || !lanes.completions.is_empty());
        let first = lanes.sleepers.iter().min();
        let late = first.is_some_and(|first| {
            let chores_at = lanes.chores_at.min(lanes.commit_at.unwrap_or(lanes.chores_at));
            !lanes.deciding && (lanes.decide_at < *first || (!lanes.writing && chores_at < *first))
        });
        let write = !lanes.writing && lanes.put_off == 0 && lanes.commit_at.is_none() && backlog.is_waiting();
        let needed = first.is_some() && (lanes.ended || turn || late || write);
        drop(lanes);
        if needed {
            self.wake.notify_one();
        }
    }

    /// A turn is over; `wait` is how long the engine can do without another.
    pub(crate) fn decided(&self, turn: Turn, wait: Duration) {
        let mut lanes = self.lock();
        lanes.deciding = false;
        lanes.decide_at = Instant::now() + wait;
        lanes.spare = turn;
    }

    /// A commit is over.
    pub(crate) fn wrote(&self) {
        let mut lanes = self.lock();
        lanes.writing = false;
        lanes.commit_at = None;
        lanes.chores_next = true;
    }

    /// An attempt to commit left nothing: the next one is due then. Chores go on meanwhile, they may make room.
    pub(crate) fn wrote_nothing(&self, at: Instant) {
        let mut lanes = self.lock();
        lanes.writing = false;
        lanes.commit_at = Some(at);
    }

    /// The chores are done until then.
    pub(crate) fn chores_done(&self, until: Instant) {
        let mut lanes = self.lock();
        lanes.writing = false;
        lanes.chores_at = until;
        lanes.chores_next = false;
    }

    /// Lets nobody in any more. What is still queued is dropped, so its askers learn it.
    pub(crate) fn end(&self) {
        let mut lanes = self.lock();
        lanes.ended = true;
        let dropped = std::mem::take(&mut lanes.requests);
        drop(lanes);
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

    /// The lanes are consistent after every statement, so a panic elsewhere does not spoil them.
    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
