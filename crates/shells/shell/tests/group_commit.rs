//! Group commit under a store that fails in every way a store may fail: each batch is answered exactly once, in order,
//! and never as durable when it is not.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millrace_model::*;
use millrace_shell::{
    CommitLimits, CommitQueue, CommitReceiver, Committed, GroupCommit, Housekeeping, QueueClosed, Wrote,
};
use millrace_store::*;
use parking_lot::Mutex;

/// How the next call of the store ends, when it does not succeed.
enum Fault {
    NoSpace,
    Fails,
    Outdated,
    Panics,
}

/// A store whose next calls meet the scripted faults.
#[derive(Default)]
struct FaultyStore {
    store: MemoryStore,
    faults: Mutex<VecDeque<Fault>>,
    /// The number of batches in each commit that succeeded.
    commits: Mutex<Vec<usize>>,
    bytes_max: Option<usize>,
    /// Batches that arrive while the store lets a commit wait, and where to.
    arriving: Mutex<Vec<(u32, Batch)>>,
    queue: Arc<CommitQueue<u32>>,
}

impl FaultyStore {
    fn fault(&self) -> Result<(), StoreError> {
        match self.faults.lock().pop_front() {
            None => Ok(()),
            Some(Fault::NoSpace) => Err(StoreError::NoSpace("full".into())),
            Some(Fault::Fails) => Err(StoreError::Poisoned("broken".into())),
            Some(Fault::Outdated) => Err(StoreError::Outdated { found: 2, known: 1 }),
            Some(Fault::Panics) => panic!("a bug in the store"),
        }
    }
}

impl Store for FaultyStore {
    millrace_conformance::forward_reads_to!(store);

    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        if let Some(max) = self.bytes_max
            && let Some(bytes) = batches.iter().map(Batch::bytes).find(|bytes| *bytes > max)
        {
            return Err(StoreError::TooLarge { bytes, max });
        }
        self.fault()?;
        self.commits.lock().push(batches.len());
        self.store.commit(batches)
    }
    fn wait_to_commit(&self) {
        self.queue.push(&mut self.arriving.lock()).unwrap();
    }
    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError> {
        self.fault()?;
        self.store.maintain(rows_max)
    }
}

/// Notes every answer. Senders below 100 wait while a commit is retried, the others do not.
#[derive(Default)]
struct Answers(Arc<Mutex<Vec<String>>>);

impl CommitReceiver for Answers {
    type Origin = u32;

    fn refuses(&self, sender: &u32, _batch: &Batch) -> Option<StoreError> {
        (*sender == 7).then(|| StoreError::NoSpace("not seven".into()))
    }

    fn committed(&self, commit: Committed<u32>) {
        let done = commit.outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Done(_))).count();
        assert_eq!((done, commit.batches.len()), (commit.origins.len(), commit.origins.len()));
        assert_eq!(commit.bytes, commit.batches.iter().map(Batch::bytes).sum::<usize>());
        self.0.lock().push(format!("committed {:?}", commit.origins));
    }

    fn refused(&self, sender: u32, error: StoreError) {
        self.0.lock().push(format!("refused {sender}: {error}"));
    }

    fn waits_for_retry(&self, sender: &u32, _error: &StoreError) -> bool {
        *sender < 100
    }

    fn retrying(&self, _error: &StoreError, attempt: u32) {
        self.0.lock().push(format!("retrying {attempt}"));
    }

    fn failed(&self, senders: Vec<u32>, _error: StoreError) {
        self.0.lock().push(format!("failed {senders:?}"));
    }

    fn given_up(&self, senders: Vec<u32>, _error: StoreError) {
        self.0.lock().push(format!("given up {senders:?}"));
    }
}

struct Rig {
    store: Arc<FaultyStore>,
    group: GroupCommit<Answers>,
    answers: Arc<Mutex<Vec<String>>>,
}

impl Rig {
    fn new(store: FaultyStore, limits: CommitLimits) -> Rig {
        let (store, receiver) = (Arc::new(store), Answers::default());
        let answers = receiver.0.clone();
        let queue = store.queue.clone();
        let pause_max = Duration::from_secs(1);
        let group = GroupCommit::new(store.clone(), queue, receiver, limits, pause_max);
        Rig { store, group, answers }
    }

    fn with(faults: impl IntoIterator<Item = Fault>) -> Rig {
        let store =
            FaultyStore { faults: Mutex::new(faults.into_iter().collect()), ..FaultyStore::default() };
        Rig::new(store, CommitLimits { batches_max: 100, bytes_max: 1 << 20 })
    }

    fn push(&self, senders: impl IntoIterator<Item = u32>) -> Result<(), QueueClosed> {
        let mut batches = senders.into_iter().map(|sender| (sender, batch(sender, 10))).collect();
        self.group.queue.push(&mut batches)
    }

    fn answers(&self) -> Vec<String> {
        std::mem::take(&mut *self.answers.lock())
    }

    fn counts(&self) -> (usize, usize, usize) {
        let queue = &self.group.queue;
        (queue.waiting(), queue.batches(), queue.bytes())
    }
}

fn batch(number: u32, bytes: usize) -> Batch {
    let (key, value) = (format!("row/{number}"), Bytes::from(vec![b'x'; bytes]));
    Batch { ops: vec![Op::Put { space: Space::Kv, key, value }], ..Batch::default() }
}

#[test]
fn batches_that_arrive_while_a_commit_waits_for_its_time_are_part_of_it() {
    let rig = Rig::with([]);
    *rig.store.arriving.lock() = vec![(2, batch(2, 10)), (3, batch(3, 10))];
    // Nothing is committed, so nothing is waited for.
    assert!(matches!(rig.group.commit_queued(), Wrote::Done(0)));
    rig.push([1]).unwrap();
    assert!(matches!(rig.group.commit_queued(), Wrote::Done(3)));
    assert_eq!(*rig.answers.lock(), ["committed [1, 2, 3]"]);
}

#[test]
fn everything_that_waits_shares_a_commit_within_the_limits() {
    let rig = Rig::new(FaultyStore::default(), CommitLimits { batches_max: 3, bytes_max: 1 << 20 });
    rig.push(1..=5).unwrap();
    assert_eq!(rig.counts().0, 5);
    assert!(matches!(rig.group.commit_queued(), Wrote::Done(3)));
    assert_eq!((rig.counts().0, rig.counts().1), (2, 2));
    assert!(matches!(rig.group.commit_queued(), Wrote::Done(2)));
    assert!(matches!(rig.group.commit_queued(), Wrote::Done(0)));
    assert_eq!(rig.answers(), ["committed [1, 2, 3]", "committed [4, 5]"]);
    assert_eq!((&rig.store.commits.lock()[..], rig.counts()), (&[3, 2][..], (0, 0, 0)));
}

#[test]
fn a_first_batch_is_taken_whatever_its_size_and_bytes_bound_the_rest() {
    let rig = Rig::new(FaultyStore::default(), CommitLimits { batches_max: 100, bytes_max: 1000 });
    let sizes = [2000, 400, 400, 400];
    let mut batches = (1..).zip(sizes).map(|(sender, bytes)| (sender, batch(sender, bytes))).collect();
    rig.group.queue.push(&mut batches).unwrap();
    while rig.group.queue.is_waiting() {
        rig.group.commit_queued();
    }
    assert_eq!(rig.answers(), ["committed [1]", "committed [2, 3]", "committed [4]"]);
}

#[test]
fn a_batch_that_is_too_large_is_refused_alone_and_in_its_turn() {
    let rig = Rig::with([]);
    rig.push([1]).unwrap();
    rig.group.queue.push(&mut vec![(2, batch(2, BATCH_BYTES_MAX))]).unwrap();
    rig.push([3]).unwrap();
    while rig.group.queue.is_waiting() {
        rig.group.commit_queued();
    }
    let answers = rig.answers();
    assert_eq!((&*answers[0], &*answers[2]), ("committed [1]", "committed [3]"));
    assert!(answers[1].starts_with("refused 2: "), "{answers:?}");
    assert_eq!(rig.counts(), (0, 0, 0));
}

#[test]
fn a_store_that_counts_otherwise_refuses_one_batch_of_many() {
    let store = FaultyStore { bytes_max: Some(500), ..FaultyStore::default() };
    let rig = Rig::new(store, CommitLimits { batches_max: 100, bytes_max: 1 << 20 });
    rig.push([1]).unwrap();
    rig.group.queue.push(&mut vec![(2, batch(2, 600))]).unwrap();
    rig.push([3]).unwrap();
    rig.group.commit_queued();
    let answers = rig.answers();
    assert_eq!((&*answers[0], &*answers[2], answers.len()), ("committed [1]", "committed [3]", 3));
    assert!(answers[1].starts_with("refused 2: "), "{answers:?}");
    assert_eq!(rig.counts(), (0, 0, 0));
}

#[test]
fn singly_committed_batches_that_meet_a_full_disk_are_kept_in_order() {
    let store = FaultyStore {
        bytes_max: Some(500),
        faults: Mutex::new([Fault::NoSpace].into()),
        ..FaultyStore::default()
    };
    let rig = Rig::new(store, CommitLimits { batches_max: 100, bytes_max: 1 << 20 });
    rig.push([1]).unwrap();
    rig.group.queue.push(&mut vec![(2, batch(2, 600))]).unwrap();
    rig.push([3]).unwrap();
    assert!(matches!(rig.group.commit_queued(), Wrote::Again(_)));
    assert_eq!(rig.counts().0, 3, "the first batch met the full disk: all are kept");
    rig.group.commit_queued();
    let answers = rig.answers();
    assert_eq!((&*answers[0], &*answers[1], &*answers[3]), ("retrying 0", "committed [1]", "committed [3]"));
    assert_eq!(rig.counts(), (0, 0, 0));
}

#[test]
fn a_commit_that_wrote_nothing_is_retried_first_and_in_order_after_a_growing_pause() {
    let rig = Rig::with([Fault::NoSpace, Fault::NoSpace, Fault::NoSpace]);
    rig.push([1, 100, 2]).unwrap();
    let pause = |wrote| match wrote {
        Wrote::Again(at) => at - Instant::now(),
        other => panic!("{other:?}"),
    };
    let first = pause(rig.group.commit_queued());
    rig.push([3]).unwrap();
    let second = pause(rig.group.commit_queued());
    pause(rig.group.commit_queued());
    assert!(second > first, "{first:?} {second:?}");
    assert!(matches!(rig.group.commit_queued(), Wrote::Done(3)));
    let retries = ["retrying 0", "refused 100: ", "retrying 1", "retrying 2", "committed [1, 2, 3]"];
    let answers = rig.answers();
    assert_eq!(answers.len(), retries.len(), "{answers:?}");
    assert!(answers.iter().zip(retries).all(|(answer, start)| answer.starts_with(start)), "{answers:?}");
    assert_eq!(rig.counts(), (0, 0, 0));
    // The count of attempts starts over.
    rig.store.faults.lock().push_back(Fault::NoSpace);
    rig.push([4]).unwrap();
    rig.group.commit_queued();
    assert_eq!(rig.answers(), ["retrying 0"]);
}

#[test]
fn a_batch_that_the_shell_refuses_is_not_committed() {
    let rig = Rig::with([]);
    rig.push([6, 7, 8]).unwrap();
    assert!(matches!(rig.group.commit_queued(), Wrote::Done(3)));
    rig.push([7]).unwrap();
    rig.group.commit_queued();
    let answers = rig.answers();
    assert!(answers[0].starts_with("refused 7: ") && answers[2].starts_with("refused 7: "), "{answers:?}");
    assert_eq!((&*answers[1], &rig.store.commits.lock()[..]), ("committed [6, 8]", &[2][..]));
    assert_eq!(rig.counts(), (0, 0, 0));
}

#[test]
fn a_failed_commit_tells_its_senders_and_those_behind_it_and_closes_the_queue() {
    let store = FaultyStore { faults: Mutex::new([Fault::Fails].into()), ..FaultyStore::default() };
    let rig = Rig::new(store, CommitLimits { batches_max: 2, bytes_max: 1 << 20 });
    rig.push([1, 2, 3]).unwrap();
    assert!(matches!(rig.group.commit_queued(), Wrote::Never));
    assert_eq!((rig.answers(), rig.counts()), (vec!["failed [1, 2, 3]".to_owned()], (0, 0, 0)));
    let mut late = vec![(4, batch(4, 10))];
    assert!(matches!(rig.group.queue.push(&mut late), Err(QueueClosed::Failed(StoreError::Poisoned(_)))));
    assert_eq!(late.len(), 1, "the sender still has it, to be answered");
    assert!(!rig.group.queue.wait_for_batches(Instant::now() + Duration::from_secs(3600)));
}

/// Nothing was written, but no retry can succeed: this process must make way for one of the store's new version.
#[test]
fn a_store_of_another_version_ends_the_writing_at_once() {
    let rig = Rig::with([Fault::Outdated]);
    rig.push([1, 2]).unwrap();
    assert!(matches!(rig.group.commit_queued(), Wrote::Never));
    assert_eq!(rig.answers(), ["failed [1, 2]"]);
}

#[test]
fn a_panic_of_the_store_tells_everybody_behind_the_commit() {
    let store = FaultyStore { faults: Mutex::new([Fault::Panics].into()), ..FaultyStore::default() };
    let rig = Rig::new(store, CommitLimits { batches_max: 1, bytes_max: 1 << 20 });
    rig.push([1, 2]).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| rig.group.commit_queued())).is_err());
    assert_eq!(rig.answers(), ["failed [2]"]);
    assert!(rig.push([3]).is_err());
}

#[test]
fn after_the_end_the_queue_is_written_once_more_and_then_given_up() {
    let rig = Rig::with([]);
    rig.push([1]).unwrap();
    rig.group.queue.end();
    assert!(rig.push([2]).is_err());
    assert!(rig.group.queue.wait_for_batches(Instant::now()), "the batch is still to be committed");
    assert!(matches!(rig.group.commit_queued(), Wrote::Done(1)));
    assert!(!rig.group.queue.wait_for_batches(Instant::now()));
    assert_eq!(rig.answers(), ["committed [1]"]);

    let rig = Rig::with([Fault::NoSpace]);
    rig.push([1, 2]).unwrap();
    rig.group.queue.end();
    assert!(matches!(rig.group.commit_queued(), Wrote::Never));
    assert_eq!(rig.answers(), ["retrying 0", "given up [1, 2]"]);
    assert_eq!(rig.counts(), (0, 0, 0));
}

#[test]
fn housekeeping_that_wrote_nothing_is_deferred_and_a_failure_ends_the_writing() {
    let rig = Rig::with([Fault::NoSpace, Fault::Fails]);
    let interval = Duration::from_secs(3600);
    let mut housekeeping = Housekeeping::new(10, interval);
    let mut run = || rig.group.guarded(|| housekeeping.run(&*rig.store, || false));
    let slice = run().unwrap();
    assert!(slice.deferred_by.is_some_and(|error| error.may_be_retried()) && slice.rows == 0);
    rig.push([1]).unwrap();
    assert!(run().is_none());
    assert_eq!(rig.answers(), ["failed [1]"]);
    assert!(housekeeping.due_at() > Instant::now() + interval / 2);
}

#[test]
fn a_thread_that_panics_outside_of_a_commit_leaves_nobody_waiting() {
    let rig = Rig::with([]);
    rig.push([1]).unwrap();
    let thread = AssertUnwindSafe(|| {
        let _guard = rig.group.panic_guard();
        panic!("a bug beside the commits");
    });
    assert!(catch_unwind(thread).is_err());
    assert_eq!(rig.answers(), ["failed [1]"]);
    assert!(matches!(rig.push([2]), Err(QueueClosed::Failed(_))));
    // A thread that ends in order fails nothing.
    let rig = Rig::with([]);
    rig.push([1]).unwrap();
    drop(rig.group.panic_guard());
    assert!(rig.push([2]).is_ok() && rig.answers().is_empty());
}

#[test]
fn a_thread_that_waits_is_woken_by_a_batch_and_by_the_end() {
    let rig = Rig::with([]);
    let queue = rig.group.queue.clone();
    let far = Instant::now() + Duration::from_secs(36_000);
    let waits = std::thread::spawn(move || {
        let woken = queue.wait_for_batches(far);
        queue.wait_for_end(far);
        woken
    });
    rig.push([1]).unwrap();
    rig.group.queue.end();
    assert!(waits.join().unwrap(), "there is a batch, at the end, too");
    assert_eq!(rig.group.queue.close(), [1]);
    assert_eq!(rig.counts(), (0, 0, 0));
}
