//! The state of the model: the schedule, what waits, and where each thread stands.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::schedule::{Happened, Load, Schedule, ScheduleLimits, Wake};

/// Time is counted in ticks from here.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// So long that the longest sleep never hides a missing wake-up.
const SLEEP_MAX: u64 = 1_000_000;
/// Later than everything that happens.
pub(crate) const FAR: u64 = 1000;
/// Batches beyond which the backlog takes no requests.
const BACKLOG_MAX: usize = 2;

pub(crate) fn instant(tick: u64) -> Instant {
    *START + Duration::from_millis(tick)
}

pub(crate) fn tick(instant: Instant) -> u64 {
    u64::try_from(instant.duration_since(*START).as_millis()).unwrap()
}

/// How often each thing may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Requests of each edge.
    pub(crate) sends: [usize; 2],
    /// Requests that come in such numbers that their turn is long.
    pub(crate) floods: usize,
    pub(crate) completions: usize,
    pub(crate) rows: usize,
    /// Calls of the store that others have committed.
    pub(crate) news: usize,
    /// Commits that write nothing.
    pub(crate) retries: usize,
    pub(crate) failures: usize,
    pub(crate) panics: usize,
    pub(crate) ticks: u64,
    pub(crate) end: bool,
}

/// A thread's place in its program. A step of the model leads from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum At {
    /// A worker that asks for its next job.
    Looks,
    Sleeps {
        until: u64,
        woken: bool,
    },
    /// The engine runs; nothing of its results is visible.
    Decides {
        requests: usize,
    },
    /// The batches are in the backlog; the end of the turn is not reported.
    Decided,
    Commits {
        batches: usize,
    },
    /// The outcomes are in the inbox; the end of the commit is not reported.
    Committed,
    Maintains,
    Retires,
    /// An edge that waits for its client.
    Idle,
    /// An edge that lets other tasks of its thread go on and then looks again.
    Gathers,
    /// An edge that has run so many turns inline and looks for the next.
    LooksInline,
    /// An edge that may commit, or wakes a worker to do it.
    Leaves,
    Finishes,
    /// A row writer whose batch is in the backlog.
    Submitted,
    /// Ends the broker; the backlog has ended.
    Ending,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Thread {
    pub(crate) kind: Kind,
    pub(crate) at: At,
    /// A wake-up that this thread owes: it was decided under the lock and is given without it.
    pub(crate) owes: Option<Wake>,
    /// Turns that an edge has run for its present request.
    pub(crate) turns: usize,
    pub(crate) may_commit: bool,
    /// The last turn of an edge, over the outcome of its own commit.
    pub(crate) is_last_turn: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Worker,
    Edge(usize),
    /// A reader, a row writer or the end: a thread that only calls the inbox.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) schedule: Schedule,
    pub(crate) threads: Vec<Thread>,
    pub(crate) budget: Budget,
    pub(crate) now: u64,
    pub(crate) requests: usize,
    pub(crate) completions: usize,
    pub(crate) batches: usize,
    /// The times that the schedule was last told; the checks need them.
    pub(crate) decide_at: u64,
    pub(crate) maintenance_at: u64,
    pub(crate) commit_at: Option<u64>,
    /// Others have committed, and no poll has begun since.
    pub(crate) is_told: bool,
    pub(crate) has_engine: bool,
    pub(crate) has_failed: bool,
    /// The backlog accepts no more batches.
    pub(crate) has_ended: bool,
    pub(crate) violation: Option<&'static str>,
    /// Wake-ups for this reason are left out.
    pub(crate) left_out: Option<Wake>,
}

impl World {
    pub(crate) fn new(budget: Budget, left_out: Option<Wake>) -> World {
        let limits =
            ScheduleLimits { threads: 2, sleep_max: Duration::from_millis(SLEEP_MAX), inline_commits: true };
        let thread =
            |kind, at| Thread { kind, at, owes: None, turns: 0, may_commit: false, is_last_turn: false };
        World {
            schedule: Schedule::new(limits, instant(0)),
            threads: vec![
                thread(Kind::Worker, At::Looks),
                thread(Kind::Worker, At::Looks),
                thread(Kind::Edge(0), At::Idle),
                thread(Kind::Edge(1), At::Idle),
                thread(Kind::Other, At::Idle),
            ],
            budget,
            now: 0,
            requests: 0,
            completions: 0,
            batches: 0,
            decide_at: 0,
            maintenance_at: 0,
            commit_at: None,
            is_told: false,
            has_engine: true,
            has_failed: false,
            has_ended: false,
            violation: None,
            left_out,
        }
    }

    /// Lets both workers find that there is nothing to do yet.
    pub(crate) fn settled(mut self) -> World {
        let far = instant(FAR);
        let (load, start) = (self.load(), instant(0));
        for happened in [Happened::Decided { next_at: far }, Happened::Maintained { next_at: far }] {
            self.schedule.next(&load, start);
            self.schedule.report(happened);
        }
        (self.decide_at, self.maintenance_at) = (FAR, FAR);
        for worker in 0..2 {
            self.schedule.next(&load, start);
            self.threads[worker].at = At::Sleeps { until: FAR, woken: false };
        }
        self
    }

    /// The same world with its workers, and its edges, in a fixed order: which is which does not matter.
    pub(crate) fn sorted(&self) -> World {
        let mut world = self.clone();
        let [worker, other, edge, second, ..] = &mut *world.threads else { return world };
        if (worker.at, owed(worker)) > (other.at, owed(other)) {
            std::mem::swap(worker, other);
        }
        let sends = &mut world.budget.sends;
        if (sends[0], edge.at, owed(edge), edge.turns) > (sends[1], second.at, owed(second), second.turns) {
            sends.swap(0, 1);
            std::mem::swap(edge, second);
            std::mem::swap(&mut edge.kind, &mut second.kind);
        }
        world
    }

    pub(crate) fn load(&self) -> Load {
        let committing: usize = self
            .threads
            .iter()
            .map(|thread| match thread.at {
                At::Commits { batches } => batches,
                _ => 0,
            })
            .sum();
        Load {
            requests: self.requests,
            completions: self.completions,
            batches: self.batches,
            accepts_requests: self.batches + committing < BACKLOG_MAX,
        }
    }

    /// Reports to the schedule; the thread owes the wake-up that comes of it.
    pub(crate) fn report(&mut self, thread: usize, happened: Happened) {
        let wake = self.schedule.report(happened);
        self.owe(thread, wake);
    }

    pub(crate) fn wake_for_rest(&mut self, thread: usize) {
        let wake = self.schedule.wake_for_rest(&self.load());
        self.owe(thread, wake);
    }

    pub(crate) fn owe(&mut self, thread: usize, wake: Option<Wake>) {
        self.threads[thread].owes = wake.filter(|wake| Some(*wake) != self.left_out);
    }

    /// Takes the inputs of a turn out of the queues.
    pub(crate) fn take_turn(&mut self) -> At {
        let requests = if self.load().accepts_requests { std::mem::take(&mut self.requests) } else { 0 };
        self.completions = 0;
        At::Decides { requests }
    }

    pub(crate) fn is(&self, wanted: impl Fn(&At) -> bool) -> usize {
        self.threads.iter().filter(|thread| wanted(&thread.at)).count()
    }

    pub(crate) fn is_writing(&self) -> bool {
        self.is(|at| matches!(at, At::Commits { .. } | At::Committed | At::Maintains)) > 0
    }
}

/// A number for the wake-up that a thread owes.
fn owed(thread: &Thread) -> u8 {
    thread.owes.map_or(0, |wake| wake as u8 + 1)
}
