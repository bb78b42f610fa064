//! The same engine on virtual time and a store in memory: a month of retries, leases and cron in milliseconds.
//!
//! Everything happens on the thread that calls: handlers run one after the other, in an order that depends on the seed
//! and on nothing else.

mod actor;
mod ground;
mod world;

use std::any::Any;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_claims::Input;

use self::actor::Actor;
pub(crate) use self::actor::ActorId;
pub(crate) use self::ground::Ground;
pub(crate) use self::world::World;
use super::clock::{Clock, VirtualClock};
use crate::error::Result;
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
    worker: Arc<Mutex<Option<ActorId>>>,
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

    /// As [`Session::with`].
    #[must_use]
    pub fn with<T: Any + Send + Sync>(&self, value: T) -> Simulation {
        Simulation::of(self.session.with(value), self.world.clone())
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
        let actor = Actor::new(worker, self.session.clone(), handlers)?;
        self.crash();
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

    fn worker(&self) -> MutexGuard<'_, Option<ActorId>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn clock(&self) -> VirtualClock {
        self.world.ground.clock.clone()
    }
}
