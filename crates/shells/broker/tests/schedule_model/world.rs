//! Sleep, disk, clients and clock of the model. Threads that wait for any of them are known here, so that the moment is
//! known when nobody goes on by itself: then nothing may wait for a thread that sleeps, and one of the waiting things
//! happens.
//!
//! All threads of an execution run on one thread of the operating system, one at a time, and change only at calls of
//! the model checker. So the world is an ordinary value, and nothing in it is locked.

use std::cell::RefCell;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::thread;

use crate::schedule::Wake;

/// Time is counted in ticks from here.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);
/// How often the clock moves in one execution.
const TICKS: usize = 8;
/// Alarms after this time never ring.
pub(crate) const FAR: u64 = 10_000;

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
}

/// The state of the broker that the checks need.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) requests: usize,
    pub(crate) completions: usize,
    pub(crate) batches: usize,
    pub(crate) accepts_requests: bool,
    pub(crate) decide_at: u64,
    pub(crate) maintenance_at: u64,
    pub(crate) commit_at: Option<u64>,
    pub(crate) is_deciding: bool,
    pub(crate) is_writing: bool,
    pub(crate) is_inline_commit: bool,
    pub(crate) has_failed: bool,
    pub(crate) has_ended: bool,
}

#[derive(Default)]
struct World {
    now: u64,
    /// Threads that go on by themselves.
    busy: usize,
    ticks: usize,
    left_out: Option<Wake>,
    waiting: Vec<Waiting>,
    next_id: usize,
    /// Threads whose wait is over and that do not know it yet.
    ended: Vec<Sender<()>>,
    facts: Facts,
}

struct Waiting {
    id: usize,
    sender: Sender<()>,
    until: Until,
    is_over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// A worker sleeps until this time.
    Tick(u64),
    /// The disk, or a client that takes its time.
    Outside,
    /// Everything else is over.
    Last,
}

/// A wait that has begun.
pub(crate) struct Wait {
    id: usize,
    is_over: Receiver<()>,
}

pub(crate) fn instant(tick: u64) -> Instant {
    *START + Duration::from_millis(tick)
}

pub(crate) fn tick() -> u64 {
    with(|world| world.now)
}

pub(crate) fn now() -> Instant {
    instant(tick())
}

/// Begins an execution with so many threads.
pub(crate) fn begin(threads: usize, left_out: Option<Wake>) {
    with(|world| *world = World { busy: threads, ticks: TICKS, left_out, ..World::default() });
}

/// Forgets an execution that has failed: what belongs to it cannot be dropped outside of it.
pub(crate) fn forget() {
    std::mem::forget(WORLD.take());
}

pub(crate) fn facts<T>(change: impl FnOnce(&mut Facts) -> T) -> T {
    with(|world| change(&mut world.facts))
}

pub(crate) fn fall_asleep(until: Instant) -> Wait {
    let until = u64::try_from(until.duration_since(*START).as_millis()).unwrap();
    assert!(until > tick(), "a thread sleeps until a time that has passed: it would spin");
    with(|world| world.wait(Until::Tick(until)))
}

/// Waits for the disk or for a client, perhaps only until another thread has had its turn.
pub(crate) fn wait_outside() {
    if thread_rng().gen_bool(0.5) {
        thread::yield_now();
    } else {
        with(|world| world.wait(Until::Outside)).wait();
    }
}

pub(crate) fn wait_for_everything_else() {
    with(|world| world.wait(Until::Last)).wait();
}

/// The calling thread ends.
pub(crate) fn leave() {
    with(World::idle);
}

pub(crate) fn wake(wake: Wake) {
    with(|world| {
        if world.left_out == Some(wake) {
            return;
        }
        let count = if wake.is_for_all() { usize::MAX } else { 1 };
        world.end_waits(count, |waiting| matches!(waiting.until, Until::Tick(_)));
    });
    // A switch, as after any wake-up.
    thread::yield_now();
}

fn with<T>(change: impl FnOnce(&mut World) -> T) -> T {
    let (changed, ended) = WORLD.with_borrow_mut(|world| (change(world), std::mem::take(&mut world.ended)));
    // Other threads may go on at each of these calls, so the world is not borrowed meanwhile.
    ended.iter().for_each(|sender| sender.send(()).unwrap());
    changed
}

impl Wait {
    pub(crate) fn wait(self) {
        with(World::idle);
        self.is_over.recv().unwrap();
        with(|world| world.waiting.retain(|waiting| waiting.id != self.id));
    }
}

impl World {
    fn wait(&mut self, until: Until) -> Wait {
        self.next_id += 1;
        let (id, (sender, is_over)) = (self.next_id, channel());
        self.waiting.push(Waiting { id, sender, until, is_over: false });
        Wait { id, is_over }
    }

    /// Ends the first waits of this kind.
    fn end_waits(&mut self, count: usize, wanted: impl Fn(&Waiting) -> bool) {
        let waits = self.waiting.iter_mut().filter(|waiting| !waiting.is_over && wanted(waiting));
        for waiting in waits.take(count) {
            waiting.is_over = true;
            self.ended.push(waiting.sender.clone());
            self.busy += 1;
        }
    }

    fn idle(&mut self) {
        self.busy -= 1;
        if self.busy == 0 {
            self.check();
            self.go_on();
        }
    }

    fn alarm(&self) -> Option<u64> {
        let alarms = self.waiting.iter().filter_map(|waiting| match waiting.until {
            Until::Tick(tick) => Some(tick),
            _ => None,
        });
        alarms.min()
    }

    /// Nobody goes on by itself: threads sleep, have ended, or are at the disk, perhaps for ever.
    fn check(&self) {
        let Some(alarm) = self.alarm() else { return };
        let facts = &self.facts;
        if facts.has_ended {
            assert!(facts.is_writing && !facts.has_failed, "a thread sleeps although it is to end");
            return;
        }
        let inputs = facts.completions > 0 || (facts.requests > 0 && facts.accepts_requests);
        assert!(!inputs, "inputs wait and nobody decides: {facts:?}");
        // While an edge commits, the engine's alarm may be late by as long as the commit takes.
        let in_time = facts.is_inline_commit || alarm <= facts.decide_at;
        assert!(in_time, "the engine must run and every thread sleeps longer: {facts:?}");
        if facts.is_writing {
            return;
        }
        if facts.batches > 0 {
            let retry_at = facts.commit_at.expect("batches wait and nobody commits");
            assert!(
                alarm <= retry_at,
                "a commit is to be repeated and every thread sleeps longer: {facts:?}"
            );
        }
        assert!(
            alarm <= facts.maintenance_at,
            "maintenance is due and every thread sleeps longer: {facts:?}"
        );
    }

    /// Lets one thing happen that threads wait for: the disk, a client or the clock; the end last.
    fn go_on(&mut self) {
        let ready = |world: &World, wanted| {
            let found = world.waiting.iter().filter(|waiting| waiting.until == wanted && !waiting.is_over);
            found.map(|waiting| waiting.id).collect::<Vec<_>>()
        };
        let outside = ready(self, Until::Outside);
        // A commit that is to be repeated is always repeated.
        let may_ring = self.ticks > 0 || self.facts.batches > 0;
        let alarm = self.alarm().filter(|alarm| *alarm < FAR && may_ring);
        let rings = alarm.filter(|_| outside.is_empty() || thread_rng().gen_bool(0.3));
        if let Some(alarm) = rings {
            self.ticks = self.ticks.saturating_sub(1);
            self.now = self.now.max(alarm);
            self.end_waits(usize::MAX, |waiting| matches!(waiting.until, Until::Tick(tick) if tick <= alarm));
            return;
        }
        let candidates = if outside.is_empty() { ready(self, Until::Last) } else { outside };
        if candidates.is_empty() {
            return;
        }
        let chosen = candidates[thread_rng().gen_range(0..candidates.len())];
        self.end_waits(1, |waiting| waiting.id == chosen);
    }
}
