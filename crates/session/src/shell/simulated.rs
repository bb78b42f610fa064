//! The same engine on virtual time and a store in memory: a month of retries, leases and cron in milliseconds.
//!
//! Everything happens on the thread that calls: handlers run one after the other, in an order that depends on the seed
//! and on nothing else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_claims::{CommitError, Effect, Input, Run, RunId, StateChanges, Worker};
use millrace_model::{Batch, HandlerId, Mono, Op, Outcome, Space, Timestamp, TopicKey, keys};
use millrace_store::{KeyRange, MemoryStore, Store, StoreError};

use super::call::{Driver, call};
use super::clock::{Clock, VirtualClock};
use super::looks::{look, say};
use super::mailbox::Answer;
use crate::context::{Core, Link};
use crate::error::{Result, SessionError};
use crate::schedule::Schedule;
use crate::session::{Commits, Session};
use crate::typed::Handler;

/// A year has too many minutes to look for what is a week old in each of them.
const RETENTION_INTERVAL_MS_MIN: u64 = 3_600_000;

/// A session on virtual time. It is a [`Session`] in everything but how it runs: [`Simulation::start`] and then
/// [`Simulation::advance`] or [`Simulation::run_until_idle`].
#[derive(Clone, Debug)]
pub struct Simulation {
    session: Session,
    world: Arc<World>,
    /// Which worker is this session's, once it has started. Clones are the same session.
    worker: Arc<Mutex<Option<u64>>>,
}

impl Deref for Simulation {
    type Target = Session;
    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Session {
    /// A session on a store in memory and on a clock that moves only by [`Simulation::advance`]. The same seed and the
    /// same calls give the same run, ids and jitter included.
    pub fn open_simulated(seed: u64) -> Simulation {
        let ground = Arc::new(Ground::default());
        let (store, clock) = (ground.store.clone(), Clock::Virtual(ground.clock.clone()));
        let session = Session::on(store, clock, Commits::Inline(ground.clone()), seed);
        Simulation::of(session, Arc::new(World { ground, actors: Mutex::default() }))
    }
}

impl Simulation {
    fn of(session: Session, world: Arc<World>) -> Simulation {
        Simulation { session, world, worker: Arc::default() }
    }

    /// As [`Session::namespace`].
    pub fn namespace(&self, namespace: &str) -> Result<Simulation> {
        Ok(Simulation::of(self.session.namespace(namespace)?, self.world.clone()))
    }

    /// As [`Session::config`].
    #[must_use]
    pub fn config(&self, config: crate::Config) -> Simulation {
        Simulation::of(self.session.config(config), self.world.clone())
    }

    /// As [`Session::metadata`].
    #[must_use]
    pub fn metadata(&self, name: &str, value: &str) -> Simulation {
        Simulation::of(self.session.metadata(name, value), self.world.clone())
    }

    /// Another session on the same store and the same clock, as in another process.
    pub fn beside(&self) -> Simulation {
        Simulation::of(self.session.beside(), self.world.clone())
    }

    /// Begins to work. What there is to do is done by `advance` and `run_until_idle`. A session that has started already
    /// crashes first.
    pub fn start(&self, handlers: Vec<Handler>, schedules: Vec<Schedule>) -> Result<()> {
        // The world wakes everybody for what others do, so that no time is spent on looking for it.
        // Acknowledgements leave at once: waiting for company only costs steps here.
        let mut config = crate::Config { alone: true, ack_linger_ms: 0, ..self.session.settings().clone() };
        if config.retention_interval_ms > 0 {
            config.retention_interval_ms = config.retention_interval_ms.max(RETENTION_INTERVAL_MS_MIN);
        }
        let worker = self.session.worker(config, &handlers, schedules)?;
        self.crash();
        let topic = |spec: millrace_claims::HandlerSpec| {
            (TopicKey::new(self.session.namespace_name(), &spec.topic), spec.id)
        };
        let specs = handlers.iter().map(|handler| handler.spec().map(topic)).collect::<Result<_>>()?;
        let actor = Actor {
            worker,
            specs,
            session: self.session.clone(),
            handlers: handlers.into(),
            jobs: VecDeque::new(),
            answers: BTreeMap::new(),
            stopped: None,
        };
        *self.worker() = Some(self.world.lock().add(actor));
        Ok(())
    }

    /// Lets time pass; everything that comes due on the way happens at its moment, in all sessions of this clock.
    pub fn advance(&self, time: Duration) -> Result<()> {
        self.world.advance(time)
    }

    /// Does what there is to do now, in all sessions of this clock, without time passing.
    pub fn run_until_idle(&self) -> Result<()> {
        self.world.settle()
    }

    /// Stops gracefully: gives back everything unstarted.
    pub fn stop(&self) -> Result<()> {
        self.ask_to_stop();
        self.world.settle()
    }

    /// The same for a handler of this session: it stops when the handler has returned.
    pub fn ask_to_stop(&self) {
        let (now, worker) = (self.world.ground.clock.at(), *self.worker());
        let mut actors = self.world.lock();
        if let Some(actor) = worker.and_then(|id| actors.all.get_mut(&id)) {
            actor.worker.handle(now, Input::Stop);
        }
    }

    /// Ends as a killed process does: nothing is given back, leases run out.
    pub fn crash(&self) {
        if let Some(id) = self.worker().take() {
            self.world.lock().all.remove(&id);
        }
    }

    fn worker(&self) -> MutexGuard<'_, Option<u64>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn clock(&self) -> VirtualClock {
        self.world.ground.clock.clone()
    }
}

/// One store and one clock: what a session needs when nobody runs.
#[derive(Default)]
pub(crate) struct Ground {
    store: Arc<MemoryStore>,
    clock: VirtualClock,
    /// Topics that got events since the workers were last told.
    news: Mutex<BTreeSet<TopicKey>>,
    /// When somebody last committed outside of the workers. They see some of it (schedules, topics) only when they look
    /// again, which is what then has to be waited for.
    touched: Mutex<Option<Mono>>,
}

/// Everybody who works there.
pub(crate) struct World {
    ground: Arc<Ground>,
    actors: Mutex<Actors>,
}

/// By number: a session that starts again is somebody else, whatever its id.
#[derive(Default)]
struct Actors {
    next: u64,
    all: BTreeMap<u64, Actor>,
}

impl Actors {
    fn add(&mut self, actor: Actor) -> u64 {
        self.next += 1;
        self.all.insert(self.next, actor);
        self.next
    }
}

struct Actor {
    worker: Worker,
    session: Session,
    handlers: Arc<[Handler]>,
    specs: Vec<(TopicKey, HandlerId)>,
    jobs: VecDeque<Run>,
    answers: BTreeMap<RunId, Answer>,
    stopped: Option<Option<String>>,
}

impl Actor {
    /// When the first open claim of each handler is due.
    fn claims_due(&self, store: &dyn Store, others: bool) -> Vec<(TopicKey, Timestamp)> {
        if !others {
            // All claims there are are its own, and it knows when they are due.
            return Vec::new();
        }
        let namespace = self.session.namespace_name();
        let due = self.specs.iter().filter_map(|(topic, handler)| {
            let range = KeyRange::prefix(&keys::claims_of(namespace.as_str(), handler));
            let first = store.scan(Space::Claims, &range, 1).ok()?.pop()?;
            let due = first.key[range.from.len()..].split('/').next()?;
            Some((topic.clone(), Timestamp(u64::from_str_radix(due, 16).ok()?)))
        });
        due.collect()
    }
}

impl Ground {
    /// For whoever is no worker.
    pub(crate) fn commit_outside(&self, batch: Batch) -> Result<Outcome, StoreError> {
        *self.touched() = Some(self.clock.at().mono);
        self.commit(batch)
    }

    fn touched(&self) -> MutexGuard<'_, Option<Mono>> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn commit(&self, batch: Batch) -> Result<Outcome, StoreError> {
        let appends: Vec<TopicKey> = batch
            .ops
            .iter()
            .filter_map(|op| match op {
                Op::Append(append) => Some(append.stream.topic.clone()),
                _ => None,
            })
            .collect();
        let outcome = self.store.commit(&[batch])?.pop();
        let outcome = outcome.ok_or_else(|| StoreError::Poisoned("a commit without an answer".to_owned()))?;
        if matches!(outcome, Outcome::Done(_)) {
            self.news().extend(appends);
        }
        Ok(outcome)
    }

    fn news(&self) -> MutexGuard<'_, BTreeSet<TopicKey>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World {
    /// A handler's `commit()`: the engine and the store answer before anything else happens.
    pub(crate) fn handler_commit(&self, worker: u64, run: RunId, changes: StateChanges) -> Answer {
        let mut actors = self.lock();
        let Some(actor) = actors.all.get_mut(&worker) else { return Err(CommitError::Stopped) };
        actor.worker.handle(self.ground.clock.at(), Input::Commit { run, commit: changes });
        self.carry_out(actor);
        actor.answers.remove(&run).unwrap_or(Err(CommitError::Stopped))
    }

    fn advance(self: &Arc<Self>, time: Duration) -> Result<()> {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let target = self.ground.clock.at().mono + ms;
        loop {
            self.settle()?;
            let now = self.ground.clock.at().mono;
            match self.next_moment(now) {
                // A handler may have let time pass, beyond the target too.
                Some(next) if next <= target && now < target => self.ground.clock.reach(next.max(now + 1)),
                _ if now >= target => return Ok(()),
                _ => self.ground.clock.reach(target),
            }
        }
    }

    /// When something is due next: in a worker, or with a claim that anybody may take over.
    fn next_moment(&self, now: Mono) -> Option<Mono> {
        let actors = self.lock();
        let others = actors.next > 1;
        let own = actors.all.values().filter_map(|actor| actor.worker.next_deadline());
        let at = self.ground.clock.at();
        let claims = actors.all.values().flat_map(|actor| actor.claims_due(&*self.ground.store, others));
        let claims = claims.map(|(_, due)| at.mono_at(due)).filter(|due| *due > now);
        let mut touched = self.ground.touched();
        let look = |actor: &Actor| touched.map(|at| at + actor.session.settings().refresh_interval_ms);
        let looks = actors.all.values().filter_map(look).max().filter(|at| *at > now);
        if looks.is_none() {
            *touched = None;
        }
        own.chain(claims).chain(looks).min()
    }

    /// Claims that have come due may be anybody's: a lease ran out, or somebody gave an event back.
    fn wake_for_claims(&self) {
        let now = self.ground.clock.at();
        let mut actors = self.lock();
        let others = actors.next > 1;
        for actor in actors.all.values_mut() {
            let due = actor.claims_due(&*self.ground.store, others);
            let topics: Vec<_> =
                due.into_iter().filter(|(_, due)| *due <= now.wall).map(|(topic, _)| topic).collect();
            // Also when there is none: what happens now and then happens when somebody looks.
            actor.worker.handle(now, Input::News { topics: Some(topics) });
        }
    }

    fn settle(self: &Arc<Self>) -> Result<()> {
        self.wake_for_claims();
        let mut driver = Driver::default();
        while let Some((id, session, handlers, run)) = self.next_job()? {
            let Some(handler) = handlers.get(run.handler) else { continue };
            let core = Core::new(session, handler, &run, Link::World(self.clone(), id));
            // Nothing is locked: the handler may commit, or use its session.
            let result = call(handler, core, &run, &mut driver);
            let now = self.ground.clock.at();
            if let Some(actor) = self.lock().all.get_mut(&id) {
                actor.worker.handle(now, Input::Finished { run: run.run, result });
            }
        }
        Ok(())
    }

    #[allow(clippy::type_complexity)]
    fn next_job(&self) -> Result<Option<(u64, Session, Arc<[Handler]>, Run)>> {
        let mut actors = self.lock();
        let now = self.ground.clock.at();
        for actor in actors.all.values_mut() {
            if actor.worker.next_deadline().is_some_and(|at| at <= now.mono) {
                actor.worker.handle(now, Input::Tick);
            }
        }
        loop {
            for actor in actors.all.values_mut() {
                self.carry_out(actor);
            }
            let news = std::mem::take(&mut *self.ground.news());
            if news.is_empty() {
                break;
            }
            for actor in actors.all.values_mut() {
                let mine = |topic: &&TopicKey| topic.namespace() == actor.session.namespace_name().as_str();
                let topics: Vec<_> = news.iter().filter(mine).cloned().collect();
                if !topics.is_empty() {
                    actor.worker.handle(now, Input::News { topics: Some(topics) });
                }
            }
        }
        let failed = actors.all.values().find_map(|actor| actor.stopped.clone().flatten());
        actors.all.retain(|_, actor| actor.stopped.is_none());
        if let Some(reason) = failed {
            return Err(SessionError::Store(StoreError::Poisoned(reason)));
        }
        let ready = actors.all.iter_mut().find(|(_, actor)| !actor.jobs.is_empty());
        let job = ready.and_then(|(id, actor)| {
            Some((*id, actor.session.clone(), actor.handlers.clone(), actor.jobs.pop_front()?))
        });
        Ok(job)
    }

    fn carry_out(&self, actor: &mut Actor) {
        loop {
            let effects = actor.worker.drain();
            if effects.is_empty() {
                return;
            }
            let now = self.ground.clock.at();
            for effect in effects {
                match effect {
                    Effect::Commit { token, batch } => {
                        let input = match self.ground.commit(batch) {
                            Ok(outcome) => Input::Committed { token, outcome },
                            Err(error) => Input::Failed { reason: error.to_string() },
                        };
                        actor.worker.handle(now, input);
                    }
                    Effect::Look { token, look: asked } => {
                        let seen = look(&*self.ground.store, &asked);
                        actor.worker.handle(now, Input::Seen { token, seen });
                    }
                    Effect::Run(run) => actor.jobs.push_back(run),
                    Effect::Answer { run, result } => {
                        actor.answers.insert(run, result);
                    }
                    Effect::Note(note) => say(&note, &actor.handlers),
                    Effect::Stopped { failed } => actor.stopped = Some(failed),
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Actors> {
        self.actors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ground").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("ground", &self.ground).finish_non_exhaustive()
    }
}
