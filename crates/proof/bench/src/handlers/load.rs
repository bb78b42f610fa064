//! The events, the state and the handlers of the loads, and the run of a handler over a backlog.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use millrace::{Entity, Event, Handler, IntoOutgoing, Session};
use serde::{Deserialize, Serialize};

use crate::error::BenchError;

/// Events of a backlog that are published together.
const PUBLISH_TOGETHER: u64 = 1000;
/// The handler's id.
pub(crate) const HANDLER: &str = "bench::handler";
/// How often a waiting load checks whether it should end.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Event, Serialize, Deserialize)]
pub(crate) struct Job {
    number: u64,
    filler: String,
}

impl Job {
    /// The topic of jobs, as clients of a server name it.
    pub(crate) const TOPIC: &str = "job";
    /// The topic of what handlers emit.
    pub(crate) const DONE_TOPIC: &str = "job.done";

    pub(crate) fn json(&self) -> Result<String, BenchError> {
        serde_json::to_string(self).map_err(|error| BenchError::Unexpected(error.to_string()))
    }

    /// A job with a payload of about so many bytes.
    pub(crate) fn new(number: u64, payload_bytes: usize) -> Job {
        const AROUND_THE_FILLER: usize = 30;
        Job { number, filler: "x".repeat(payload_bytes.saturating_sub(AROUND_THE_FILLER)) }
    }
}

#[derive(Event, Serialize, Deserialize)]
struct JobDone {
    number: u64,
    filler: String,
}

#[derive(Entity, Serialize, Deserialize)]
struct JobState {
    #[key]
    number: u64,
    status: String,
    note: String,
}

/// The work that a handler does for a job.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Nothing,
    /// Ensures a state entity of its own for each event, and commits it.
    State,
    /// The same, and the acknowledgement is in the commit.
    StateAndAck,
    /// Emits an event.
    Emit,
}

/// Counts the events handled and signals when the goal is reached.
#[derive(Debug)]
pub(crate) struct HandledTally {
    handled: AtomicU64,
    goal: AtomicU64,
    reached: Sender<()>,
}

impl HandledTally {
    pub(crate) fn new() -> (Arc<HandledTally>, Receiver<()>) {
        let (reached, wait) = channel();
        let goal = AtomicU64::new(u64::MAX);
        (Arc::new(HandledTally { handled: AtomicU64::new(0), goal, reached }), wait)
    }

    pub(crate) fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    pub(crate) fn want(&self, more: u64) {
        self.goal.store(self.handled() + more, Ordering::Relaxed);
    }

    fn count(&self) {
        if self.handled.fetch_add(1, Ordering::Relaxed) + 1 == self.goal.load(Ordering::Relaxed) {
            // An error means that nobody waits any more.
            let _ = self.reached.send(());
        }
    }
}

pub(crate) fn handler(work: Work, tally: &Arc<HandledTally>) -> Handler {
    named_handler(HANDLER, work, tally)
}

pub(crate) fn named_handler(id: &str, work: Work, tally: &Arc<HandledTally>) -> Handler {
    let tally = tally.clone();
    Handler::from_fn::<Job>(id, move |ctx| {
        let (number, filler) = (ctx.event.number, ctx.event.filler.clone());
        match work {
            Work::Nothing => {}
            Work::State => {
                ctx.ensure(JobState { number, status: "done".to_owned(), note: filler })?;
                ctx.commit()?;
            }
            Work::StateAndAck => {
                ctx.ensure(JobState { number, status: "done".to_owned(), note: filler })?;
                ctx.commit_and_ack()?;
            }
            Work::Emit => ctx.emit(JobDone { number, filler })?,
        }
        tally.count();
        Ok(())
    })
}

pub(crate) fn publish(session: &Session, jobs: u64, payload_bytes: usize) -> Result<(), BenchError> {
    publish_each(session, jobs, |number| Job::new(number, payload_bytes))
}

/// Publishes jobs with `keys` different keys in turn.
pub(crate) fn publish_keyed(
    session: &Session,
    jobs: u64,
    payload_bytes: usize,
    keys: u64,
) -> Result<(), BenchError> {
    publish_each(session, jobs, |number| {
        Job::new(number, payload_bytes).with_key((number % keys).to_string())
    })
}

fn publish_each<E: IntoOutgoing>(
    session: &Session,
    jobs: u64,
    job: impl Fn(u64) -> E,
) -> Result<(), BenchError> {
    let mut left = jobs;
    while left > 0 {
        let now = left.min(PUBLISH_TOGETHER);
        session.publish_all((0..now).map(|n| job(left - n)))?;
        left -= now;
    }
    Ok(())
}

/// Runs the handlers until `jobs` more are done, acknowledged and durable.
pub(crate) fn work_through(
    session: &Session,
    handlers: Vec<Handler>,
    (tally, reached): (&Arc<HandledTally>, &Receiver<()>),
    jobs: u64,
    mut go_on: impl FnMut() -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    tally.want(jobs);
    let running = session.spawn(handlers, vec![])?;
    loop {
        match reached.recv_timeout(LOOK) {
            Ok(()) => return Ok(running.stop()?),
            Err(RecvTimeoutError::Timeout) if running.is_running() => go_on()?,
            Err(_) => {
                running.stop()?;
                return Err(BenchError::Unexpected("the session stopped before the backlog was done".into()));
            }
        }
    }
}
