//! A broker of the model: its engine makes a batch of every request, its disk fails as the scenario says.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use millrace_shell::Wrote;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::inbox::{BacklogLevel, Inbox, InboxLimits, Turn};
use crate::jobs::{EdgeMay, InboxOf, Jobs, hand_over, run_worker};
use crate::schedule::{ScheduleLimits, Wake};
use crate::world::{self, FAR, facts, instant};

const BACKLOG_MAX: usize = 3;
/// Batches of one commit.
const COMMIT_MAX: usize = 2;
/// The completion that reports a failure of the store.
const FAILURE: u32 = u32::MAX;
/// Requests that make a turn long.
const FLOOD: u32 = 17;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) edges: u32,
    /// Hand-overs of each edge.
    pub(crate) requests: u32,
    pub(crate) rows: u32,
    /// Commits that write nothing, at most.
    pub(crate) retries: u32,
    pub(crate) failures: u32,
    /// The end comes last.
    pub(crate) is_orderly: bool,
    /// Wake-ups for this reason are left out.
    pub(crate) left_out: Option<Wake>,
}

/// Shared like a value of one thread, which it is: see `world.rs`.
#[derive(Debug, Default)]
struct State {
    accepted: Vec<u32>,
    decided: Vec<u32>,
    submitted: Vec<u32>,
    queue: Vec<u32>,
    taken: usize,
    committed: Vec<u32>,
    answered: Vec<u32>,
    retries: u32,
    failures: u32,
    has_engine: bool,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

fn with<T>(change: impl FnOnce(&mut State) -> T) -> T {
    let (changed, waiting, all) = STATE.with_borrow_mut(|state| {
        let changed = change(state);
        (changed, state.queue.len(), state.queue.len() + state.taken)
    });
    facts(|facts| (facts.batches, facts.accepts_requests) = (waiting, all < BACKLOG_MAX));
    changed
}

#[derive(Debug)]
struct ModelBacklog;

impl BacklogLevel for ModelBacklog {
    fn waiting(&self) -> usize {
        with(|state| state.queue.len())
    }

    fn accepts_requests(&self) -> bool {
        with(|state| state.queue.len() + state.taken < BACKLOG_MAX)
    }
}

struct ModelJobs {
    inbox: Arc<Inbox<u32, u32, ModelBacklog>>,
}

/// Submits a batch, unless the backlog has ended.
fn submit(id: u32) -> bool {
    let accepts = facts(|facts| !facts.has_ended && !facts.has_failed);
    if accepts {
        with(|state| {
            state.queue.push(id);
            state.submitted.push(id);
        });
    }
    accepts
}

impl ModelJobs {
    fn end(&self) {
        facts(|facts| (facts.has_ended, facts.requests) = (true, 0));
        self.inbox.end();
    }

    fn write<T>(&self, is_inline: bool, work: impl FnOnce() -> T) -> T {
        facts(|facts| {
            assert!(!std::mem::replace(&mut facts.is_writing, true), "two threads write");
            facts.is_inline_commit = is_inline;
        });
        world::wait_outside();
        let done = work();
        facts(|facts| facts.is_inline_commit = false);
        done
    }

    /// Everybody is told, and the writer's job stays taken.
    fn fail(&self) {
        with(|state| {
            state.failures -= 1;
            state.queue.clear();
            state.taken = 0;
        });
        facts(|facts| {
            facts.has_failed = true;
            facts.completions += 1;
        });
        self.inbox.complete([FAILURE]);
    }

    fn commit_batches(&self, is_inline: bool) -> Wrote {
        let taken: Vec<u32> = with(|state| {
            let count = state.queue.len().min(COMMIT_MAX);
            state.taken = count;
            state.queue.drain(..count).collect()
        });
        self.write(is_inline, || {
            let fate = thread_rng().gen_range(0..4);
            if fate == 0 && with(|state| state.failures) > 0 {
                self.fail();
                return Wrote::Never;
            }
            if fate == 1 && with(|state| state.retries) > 0 {
                with(|state| {
                    state.retries -= 1;
                    state.taken = 0;
                    state.queue.splice(0..0, taken);
                });
                if facts(|facts| facts.has_ended) {
                    // Given up: the senders are told.
                    with(|state| state.queue.clear());
                    facts(|facts| facts.has_failed = true);
                    return Wrote::Never;
                }
                let retry_at = world::tick() + 1;
                facts(|facts| {
                    facts.commit_at = Some(retry_at);
                    facts.is_writing = false;
                });
                return Wrote::Again(instant(retry_at));
            }
            with(|state| {
                state.taken = 0;
                state.committed.extend(&taken);
            });
            facts(|facts| facts.completions += taken.len());
            self.inbox.complete_from_writer(taken.iter().copied());
            facts(|facts| {
                facts.commit_at = None;
                facts.is_writing = false;
            });
            Wrote::Done(taken.len())
        })
    }
}

impl Jobs for ModelJobs {
    type Request = u32;
    type Completion = u32;
    type Backlog = ModelBacklog;

    fn inbox(&self) -> &InboxOf<Self> {
        &self.inbox
    }

    fn turn(&self, turn: &mut Turn<u32, u32>) -> Option<Duration> {
        let was_deciding = facts(|facts| {
            facts.requests = facts.requests.saturating_sub(turn.requests.len());
            facts.completions -= turn.completions.len();
            std::mem::replace(&mut facts.is_deciding, true)
        });
        assert!(!was_deciding, "two threads decide");
        if !with(|state| state.has_engine) {
            return None;
        }
        thread::yield_now();
        with(|state| state.answered.append(&mut turn.completions));
        // A turn has one batch, whatever its length.
        if let Some(first) = turn.requests.first() {
            submit(*first);
        }
        with(|state| state.decided.append(&mut turn.requests));
        thread::yield_now();
        let wait = if thread_rng().gen_bool(0.3) { 1 } else { FAR };
        let decide_at = world::tick() + wait;
        facts(|facts| (facts.is_deciding, facts.decide_at) = (false, decide_at));
        Some(Duration::from_millis(wait))
    }

    fn commit(&self) -> Wrote {
        self.commit_batches(false)
    }

    fn maintenance(&self) -> Option<Instant> {
        self.write(false, || {
            if thread_rng().gen_ratio(1, 8) && with(|state| state.failures) > 0 {
                self.fail();
                return None;
            }
            let next_at = world::tick() + 2;
            facts(|facts| {
                facts.maintenance_at = next_at;
                facts.is_writing = false;
            });
            Some(instant(next_at))
        })
    }

    fn retire(&self) {
        with(|state| state.has_engine = false);
        self.end();
    }

    fn can_commit_inline(&self) -> bool {
        true
    }

    fn commit_inline(&self) -> Wrote {
        self.commit_batches(true)
    }
}

/// Runs one execution.
pub(crate) fn run(scenario: Scenario) {
    // Two workers, the edges, the row writer and the end.
    world::begin(4 + scenario.edges as usize, scenario.left_out);
    let Scenario { retries, failures, .. } = scenario;
    with(|state| *state = State { retries, failures, has_engine: true, ..State::default() });
    let limits = InboxLimits { room_max: 1000, turn_requests_max: 1000 };
    let schedule =
        ScheduleLimits { threads: 2, sleep_max: Duration::from_millis(100 * FAR), inline_commits: true };
    let inbox = Arc::new(Inbox::new(limits, schedule, ModelBacklog));
    let jobs = Arc::new(ModelJobs { inbox: inbox.clone() });
    let mut threads = Vec::new();
    for _ in 0..2 {
        let jobs = jobs.clone();
        threads.push(thread::spawn(move || {
            run_worker(&*jobs);
            drop(jobs);
            world::leave();
        }));
    }
    for edge in 0..scenario.edges {
        let (inbox, workers) = (inbox.clone(), Arc::downgrade(&jobs));
        threads.push(thread::spawn(move || run_edge(&inbox, &workers, edge, scenario.requests)));
    }
    let rows = inbox.clone();
    threads.push(thread::spawn(move || run_row_writer(&rows, scenario.rows)));
    let end = jobs.clone();
    threads.push(thread::spawn(move || {
        if scenario.is_orderly {
            world::wait_for_everything_else();
        } else {
            world::wait_outside();
        }
        end.end();
        drop(end);
        world::leave();
    }));
    drop(jobs);
    for thread in threads {
        thread.join().unwrap();
    }
    check_end(scenario);
}

fn run_edge(inbox: &Arc<InboxOf<ModelJobs>>, workers: &Weak<ModelJobs>, edge: u32, requests: u32) {
    for number in 0..requests {
        world::wait_outside();
        let id = 1000 * (edge + 1) + 100 * number;
        let count = if thread_rng().gen_ratio(1, 8) { FLOOD } else { 1 };
        let may_commit = thread_rng().gen_ratio(3, 4);
        let ids: Rc<Vec<u32>> = Rc::new((id..id + count).collect());
        // Counted before the hand-over, and under the same lock as the queue: the iterator runs there.
        let added = ids.clone();
        let counted = added.iter().map(|id| {
            facts(|facts| facts.requests += 1);
            (*id, 1)
        });
        let may = EdgeMay { commit: may_commit, gather: thread_rng().gen_ratio(3, 4) };
        let Ok(gathering) = hand_over::<ModelJobs>(inbox, workers, counted, may) else { continue };
        with(|state| state.accepted.extend(ids.iter()));
        if let Some(gathering) = gathering {
            thread::yield_now();
            // A connection that is closed meanwhile drops it.
            if thread_rng().gen_ratio(7, 8) {
                gathering.decide(may_commit);
            }
        }
    }
    world::leave();
}

fn run_row_writer(inbox: &Arc<InboxOf<ModelJobs>>, rows: u32) {
    for row in 0..rows {
        world::wait_outside();
        if submit(row) {
            thread::yield_now();
            inbox.wake_for_rest();
        }
    }
    world::leave();
}

fn check_end(scenario: Scenario) {
    let has_failed = facts(|facts| facts.has_failed);
    STATE.with_borrow_mut(|state| {
        for ids in [&mut state.accepted, &mut state.decided, &mut state.submitted, &mut state.committed] {
            ids.sort_unstable();
        }
        state.answered.sort_unstable();
        assert!(!state.has_engine, "the engine is still there");
        if has_failed {
            return;
        }
        assert_eq!(state.committed, state.submitted, "every batch is committed");
        if scenario.is_orderly {
            assert_eq!(state.decided, state.accepted, "every request is decided");
            assert_eq!(state.answered, state.committed, "every outcome is decided");
        }
    });
}
