//! The same engine on virtual time and a store in memory: a month of retries, leases and cron in milliseconds.
//!
//! Everything happens on the calling thread: handlers run one after the other, in an order that depends only on the
//! seed.

mod simulated_store;
mod simulated_worker;
mod world;

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use millrace_claims::Input;
use parking_lot::Mutex;

pub(crate) use self::simulated_store::SimulatedStore;
use self::simulated_worker::SimulatedWorker;
pub(crate) use self::simulated_worker::SimulatedWorkerId;
pub(crate) use self::world::SimulatedWorld;
use super::clock::{Clock, VirtualClock};
use crate::builder::{SessionBuilder, SessionSettings};
use crate::error::Result;
use crate::schedule::Schedule;
use crate::session::{Commits, Session, SessionShared};
use crate::typed::Handler;

/// Looking for expired events every minute of a simulated year would take too long.
const RETENTION_INTERVAL_MS_MIN: u64 = 3_600_000;

/// A session on virtual time. A simulation is a [`Session`] except for how it runs: [`Simulation::start`] and then
/// [`Simulation::advance`] or [`Simulation::run_until_idle`].
#[derive(Clone, Debug)]
pub struct Simulation {
    session: Session,
    world: Arc<SimulatedWorld>,
    /// The worker of this session, once it has started. Clones are the same session.
    worker: Arc<Mutex<Option<SimulatedWorkerId>>>,
}

impl Deref for Simulation {
    type Target = Session;
    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Session {
    /// Opens a session on a store in memory and on a clock that only [`Simulation::advance`] moves. The same seed and
    /// the same calls give the same run, including ids and jitter. [`Simulation::builder`] has more to choose.
    pub fn open_simulated(seed: u64) -> Simulation {
        let (shared, world) = simulated(seed);
        Simulation::of(Session::make(shared, SessionSettings::default()), world)
    }
}

/// Makes a [`Simulation`]. The methods are those of [`SessionBuilder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `open`"]
pub struct SimulationBuilder {
    session: SessionBuilder,
    world: Arc<SimulatedWorld>,
}

impl SimulationBuilder {
    /// Like [`SessionBuilder::namespace`].
    pub fn namespace(self, namespace: &str) -> SimulationBuilder {
        SimulationBuilder { session: self.session.namespace(namespace), ..self }
    }

    /// Like [`SessionBuilder::config`].
    pub fn config(self, config: crate::Config) -> SimulationBuilder {
        SimulationBuilder { session: self.session.config(config), ..self }
    }

    /// Like [`SessionBuilder::metadata`].
    pub fn metadata(self, name: &str, value: &str) -> SimulationBuilder {
        SimulationBuilder { session: self.session.metadata(name, value), ..self }
    }

    /// Like [`SessionBuilder::with`].
    pub fn with<T: Any + Send + Sync>(self, value: T) -> SimulationBuilder {
        SimulationBuilder { session: self.session.with(value), ..self }
    }

    /// Fails if the namespace's name is not valid.
    pub fn open(self) -> Result<Simulation> {
        Ok(Simulation::of(self.session.open()?, self.world))
    }
}

fn simulated(seed: u64) -> (Arc<SessionShared>, Arc<SimulatedWorld>) {
    let simulated = Arc::new(SimulatedStore::default());
    let (store, clock) = (simulated.store.clone(), Clock::Virtual(simulated.clock.clone()));
    let shared = SessionShared::new(store, clock, Commits::Inline(simulated.clone()), seed);
    (shared, Arc::new(SimulatedWorld { simulated, actors: Mutex::default() }))
}

impl Simulation {
    fn of(session: Session, world: Arc<SimulatedWorld>) -> Simulation {
        Simulation { session, world, worker: Arc::default() }
    }

    /// Returns a builder for a simulation with settings of its own, on a new store and a new clock.
    pub fn builder(seed: u64) -> SimulationBuilder {
        let (shared, world) = simulated(seed);
        SimulationBuilder { session: SessionBuilder::of_shared(shared, SessionSettings::default()), world }
    }

    /// Returns a builder for another session on the same store and the same clock, with this session's settings.
    pub fn to_builder(&self) -> SimulationBuilder {
        SimulationBuilder { session: self.session.to_builder(), world: self.world.clone() }
    }

    /// Returns another session on the same store and the same clock, as if in another process.
    pub fn beside(&self) -> Simulation {
        Simulation::of(self.session.beside(), self.world.clone())
    }

    /// Starts this session's worker; `advance` and `run_until_idle` then do the work. A session that has started
    /// already crashes first.
    pub fn start(&self, handlers: Vec<Handler>, schedules: Vec<Schedule>) -> Result<()> {
        // `alone`: the world wakes every worker for what others do, so that no time is spent on polling.
        // `ack_linger_ms`: acknowledgements are committed at once, because waiting for others only costs steps here.
        let mut config = crate::Config { alone: true, ack_linger_ms: 0, ..self.session.settings().clone() };
        if config.retention_interval_ms > 0 {
            config.retention_interval_ms = config.retention_interval_ms.max(RETENTION_INTERVAL_MS_MIN);
        }
        let worker = self.session.worker(config, &handlers, schedules)?;
        let actor = SimulatedWorker::new(worker, self.session.clone(), handlers)?;
        self.crash();
        *self.worker.lock() = Some(self.world.lock().add(actor));
        Ok(())
    }

    /// Lets time pass; everything that becomes due meanwhile happens at its moment, in all sessions of this clock.
    pub fn advance(&self, time: Duration) -> Result<()> {
        self.world.advance(time)
    }

    /// Does everything that is due now, in all sessions of this clock, without time passing.
    pub fn run_until_idle(&self) -> Result<()> {
        self.world.settle()
    }

    /// Stops gracefully: gives back everything unstarted.
    pub fn stop(&self) -> Result<()> {
        self.ask_to_stop();
        self.world.settle()
    }

    /// Stops in the same way, but may be called from a handler of this session: stops when the handler has returned.
    pub fn ask_to_stop(&self) {
        let (now, worker) = (self.world.simulated.clock.at(), *self.worker.lock());
        let mut actors = self.world.lock();
        if let Some(actor) = worker.and_then(|id| actors.all.get_mut(&id)) {
            actor.worker.handle(now, Input::Stop);
        }
    }

    /// Ends like a killed process: nothing is given back, and leases expire.
    pub fn crash(&self) {
        if let Some(id) = self.worker.lock().take() {
            self.world.lock().all.remove(&id);
        }
    }

    pub fn clock(&self) -> VirtualClock {
        self.world.simulated.clock.clone()
    }
}
