//! The mailbox with callers and a task that run only when they are woken.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Wake;

use millrace_model::{Durability, EventId, Offset, Partition, TopicName};
use millrace_wire::{Publish, PublishedPlace};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::message::NewMessage;
use crate::receipt::Awaited;
use crate::request_queue::RequestQueue;

#[derive(Default)]
struct Flag {
    woken: AtomicBool,
    times: AtomicUsize,
}

impl Wake for Flag {
    fn wake(self: Arc<Flag>) {
        self.woken.store(true, Ordering::Relaxed);
        self.times.fetch_add(1, Ordering::Relaxed);
    }
}

type Queued = Result<Awaited<Published>, ClientError>;

/// A caller, polled only when it was woken.
struct Caller {
    future: Pin<Box<dyn Future<Output = Queued>>>,
    flag: Arc<Flag>,
}

impl Caller {
    fn publish(mailbox: &Arc<Mailbox>, bytes: usize) -> Caller {
        let mailbox = mailbox.clone();
        let future = async move { mailbox.publish::<Published>(bytes, request).await };
        let flag = Arc::new(Flag { woken: true.into(), ..Flag::default() });
        Caller { future: Box::pin(future), flag }
    }

    fn run(&mut self) -> Option<Queued> {
        if !self.flag.woken.swap(false, Ordering::Relaxed) {
            return None;
        }
        match self.future.as_mut().poll(&mut Context::from_waker(&self.flag.clone().into())) {
            Poll::Ready(queued) => Some(queued),
            Poll::Pending => None,
        }
    }
}

/// The command's content does not matter here.
fn request(unconfirmed: Unconfirmed) -> ClientCommand {
    let event = NewMessage::json(&1).unwrap().into_event(None);
    ClientCommand::Publish { publish: Publish { topic: topic(), event, deliver_at: None }, unconfirmed }
}

fn topic() -> TopicName {
    TopicName::new("t").unwrap()
}

fn published() -> Published {
    Published {
        topic: topic(),
        place: PublishedPlace::At { partition: Partition(0), offset: Offset(1) },
        id: EventId::parse("i").unwrap(),
        durability: Durability::Fsync,
        rid: None,
    }
}

fn mailbox(publishes: usize, bytes: usize, requests: usize) -> Arc<Mailbox> {
    let mut options = ClientOptions::new("ws://h:1/");
    options.publishes_inflight_max = publishes;
    options.publish_bytes_inflight_max = bytes;
    options.requests_max = requests;
    Mailbox::new(&options)
}

/// The background task, which runs only when it was woken.
struct Task {
    mailbox: Arc<Mailbox>,
    flag: Arc<Flag>,
    unconfirmed: Vec<Unconfirmed>,
}

impl Task {
    fn new(mailbox: &Arc<Mailbox>) -> Task {
        let flag = Arc::new(Flag { woken: true.into(), ..Flag::default() });
        Task { mailbox: mailbox.clone(), flag, unconfirmed: Vec::new() }
    }

    fn run(&mut self) {
        if !self.flag.woken.swap(false, Ordering::Relaxed) {
            return;
        }
        let waker = self.flag.clone().into();
        let mut taken = VecDeque::new();
        while self.mailbox.poll_take(&mut taken, 3, &Context::from_waker(&waker)).is_ready() {
            for command in taken.drain(..) {
                let ClientCommand::Publish { unconfirmed, .. } = command else { continue };
                self.unconfirmed.push(unconfirmed);
            }
        }
    }

    fn settle(&mut self, count: usize) {
        let count = count.min(self.unconfirmed.len());
        let settle = |unconfirmed| Settled::One(unconfirmed, Ok(published()));
        self.mailbox.settle(&mut self.unconfirmed.drain(..count).map(settle).collect());
    }
}

/// Callers come, give up and are served in any order. However it went, whoever is left gets through, although nobody
/// runs who was not woken; and the limits hold all the time.
#[test]
fn no_caller_sleeps_for_ever() {
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let mailbox =
            mailbox(random.random_range(1..5), random.random_range(1..9), random.random_range(1..4));
        let (mut task, mut callers) = (Task::new(&mailbox), Vec::new());
        let mut receipts = Vec::new();
        for _ in 0..120 {
            match random.random_range(0..6) {
                0 | 1 => callers.push(Caller::publish(&mailbox, random.random_range(0..12))),
                2 if !callers.is_empty() => drop(callers.swap_remove(random.random_range(0..callers.len()))),
                3 => task.run(),
                4 => task.settle(random.random_range(0..3)),
                _ => run_callers(&mut callers, &mut receipts),
            }
            let state = mailbox.state.lock();
            assert!(state.publishes <= mailbox.limits.publishes && state.bytes <= mailbox.limits.bytes);
            assert!(state.requests.len() <= mailbox.limits.requests);
        }
        for _ in 0..callers.len() + 2 {
            run_callers(&mut callers, &mut receipts);
            task.run();
            task.settle(usize::MAX);
        }
        assert!(callers.is_empty(), "seed {seed}: {} callers sleep", callers.len());
        let state = mailbox.state.lock();
        assert_eq!((state.publishes, state.bytes), (0, 0), "seed {seed}");
    }
}

fn run_callers(callers: &mut Vec<Caller>, receipts: &mut Vec<Awaited<Published>>) {
    callers.retain_mut(|caller| match caller.run() {
        Some(queued) => {
            receipts.push(queued.unwrap());
            false
        }
        None => true,
    });
}

#[test]
fn callers_are_served_in_the_order_in_which_they_came() {
    let mailbox = mailbox(1, 100, 10);
    let mut task = Task::new(&mailbox);
    let [mut first, mut second, mut third] = [1, 2, 3].map(|bytes| Caller::publish(&mailbox, bytes));
    assert!(first.run().is_some() && second.run().is_none() && third.run().is_none());
    task.run();
    task.settle(1);
    assert!(third.run().is_none(), "it was not woken");
    // The second gives up although it has been woken: the third is next.
    drop(second);
    assert!(third.run().is_some());
}

#[test]
fn a_publish_of_more_bytes_than_are_allowed_goes_alone() {
    let mailbox = mailbox(10, 100, 10);
    let mut task = Task::new(&mailbox);
    let mut small = Caller::publish(&mailbox, 1);
    let mut large = Caller::publish(&mailbox, 5000);
    assert!(small.run().is_some() && large.run().is_none());
    task.run();
    task.settle(1);
    assert!(large.run().is_some());
    assert!(Caller::publish(&mailbox, 1).run().is_none());
}

#[test]
fn other_requests_do_not_wait_for_the_room_of_publishes() {
    let mailbox = mailbox(1, 100, 10);
    let mut publishes = [1, 2].map(|bytes| Caller::publish(&mailbox, bytes));
    assert_eq!(publishes.each_mut().map(|publish| publish.run().is_some()), [true, false]);
    let mut flow = Box::pin(mailbox.send(ClientCommand::Flow { credits: 1 }));
    assert!(flow.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

/// A caller that awaits receipts in turn is woken for the first, and finds the others answered.
#[test]
fn answers_that_come_together_wake_a_caller_once() {
    let mailbox = mailbox(10, 100, 10);
    let mut task = Task::new(&mailbox);
    let mut receipts: Vec<_> = (0..5).map(|_| Caller::publish(&mailbox, 1).run().unwrap().unwrap()).collect();
    assert_eq!(task.flag.times.load(Ordering::Relaxed), 0, "the task had not gone to sleep");
    task.run();
    let flag = Arc::new(Flag::default());
    let waker = flag.clone().into();
    let context = Context::from_waker(&waker);
    assert!(receipts[0].poll(&context).is_pending());
    task.settle(5);
    assert!(receipts.iter_mut().all(|receipt| matches!(receipt.poll(&context), Poll::Ready(Ok(_)))));
    assert_eq!(flag.times.load(Ordering::Relaxed), 1);
}

#[test]
fn requests_that_come_together_wake_the_task_once() {
    let mailbox = mailbox(10, 100, 10);
    let mut task = Task::new(&mailbox);
    task.run();
    let _receipts: Vec<_> = (0..5).map(|_| Caller::publish(&mailbox, 1).run()).collect();
    assert_eq!(task.flag.times.load(Ordering::Relaxed), 1);
    task.run();
    assert_eq!(task.unconfirmed.len(), 5);
}

/// As when a runtime ends, and with it the background task.
#[test]
fn whoever_waits_for_a_task_that_is_gone_learns_it() {
    let mailbox = mailbox(2, 100, 10);
    let queue = RequestQueue::new(mailbox.clone());
    let mut queued = Caller::publish(&mailbox, 1).run().unwrap().unwrap();
    let mut taken = VecDeque::new();
    let context = Context::from_waker(Waker::noop());
    assert!(mailbox.poll_take(&mut taken, 10, &context).is_ready());
    let mut untaken = Caller::publish(&mailbox, 1).run().unwrap().unwrap();
    let mut waiting = Caller::publish(&mailbox, 1);
    assert!(waiting.run().is_none());
    drop(queue);
    for receipt in [&mut queued, &mut untaken] {
        assert!(matches!(receipt.poll(&context), Poll::Ready(Err(ClientError::Closed))));
    }
    assert!(matches!(waiting.run(), Some(Err(ClientError::Closed))));
    assert!(matches!(Caller::publish(&mailbox, 1).run(), Some(Err(ClientError::Closed))));
}
