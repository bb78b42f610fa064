//! The world of a simulation: all workers on the same store and clock, advanced step by step by the caller.

use std::cell::Cell;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millrace_claims::{CommitError, Effect, HandlerRun, Input, RunError, RunId};
use millrace_model::Mono;
use millrace_store::StoreError;
use parking_lot::{Mutex, MutexGuard};

use super::simulated_store::SimulatedStore;
use super::simulated_worker::{Actors, SimulatedWorker, SimulatedWorkerId};
use crate::context::{CommitPath, Core};
use crate::error::{Result, SessionError};
use crate::session::Session;
use crate::shell::call::{Driver, call};
use crate::shell::committer::worker_input;
use crate::shell::mailbox::Answer;
use crate::shell::reads::{log_note, read};
use crate::typed::Handler;

/// The store and the clock, and all workers on them.
pub(crate) struct SimulatedWorld {
    pub(super) simulated: Arc<SimulatedStore>,
    pub(super) actors: Mutex<Actors>,
}

impl SimulatedWorld {
    /// Commits for a handler: the engine and the store answer before anything else happens.
    pub(crate) fn handler_commit(&self, worker: SimulatedWorkerId, run: RunId, input: Input) -> Answer {
        let mut actors = self.lock();
        let Some(actor) = actors.all.get_mut(&worker) else { return Err(CommitError::Stopped) };
        actor.worker.handle(self.simulated.clock.at(), input);
        self.carry_out(worker, actor);
        actor.answers.remove(&run).unwrap_or(Err(CommitError::Stopped))
    }

    pub(super) fn advance(self: &Arc<Self>, time: Duration) -> Result<()> {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let target = self.simulated.clock.at().mono + ms;
        loop {
            self.settle()?;
            let now = self.simulated.clock.at().mono;
            match self.next_moment(now) {
                // A handler may have let time pass, even beyond the target.
                Some(next) if next <= target && now < target => self.simulated.clock.reach(next.max(now + 1)),
                _ if now >= target => return Ok(()),
                _ => self.simulated.clock.reach(target),
            }
        }
    }

    /// Returns when something is due next: in a worker, or with a claim that any worker may take over.
    fn next_moment(&self, now: Mono) -> Option<Mono> {
        let actors = self.lock();
        let others = actors.have_company();
        let own = actors.all.values().filter_map(|actor| actor.worker.next_deadline());
        let at = self.simulated.clock.at();
        let store = &*self.simulated.store;
        let claims = actors.all.values().flat_map(|actor| actor.claims_due(store, others, Some(at.wall)));
        let claims = claims.map(|(_, due)| at.mono_at(due)).filter(|due| *due > now);
        let mut touched = self.simulated.touched();
        let look =
            |actor: &SimulatedWorker| touched.map(|at| at + actor.session.settings().refresh_interval_ms);
        let looks = actors.all.values().filter_map(look).max().filter(|at| *at > now);
        if looks.is_none() {
            *touched = None;
        }
        own.chain(claims).chain(looks).min()
    }

    /// Wakes all workers: any of them may take claims that are due, because a lease expired or an event was given back.
    fn wake_for_claims(&self) {
        let now = self.simulated.clock.at();
        let mut actors = self.lock();
        let others = actors.have_company();
        for actor in actors.all.values_mut() {
            let due = actor.claims_due(&*self.simulated.store, others, None);
            let topics: Vec<_> =
                due.into_iter().filter(|(_, due)| *due <= now.wall).map(|(topic, _)| topic).collect();
            // Sent even without topics: the worker's periodic work happens only when it gets an input.
            actor.worker.handle(now, Input::News { topics: Some(topics) });
        }
    }

    pub(super) fn settle(self: &Arc<Self>) -> Result<()> {
        self.wake_for_claims();
        let mut driver = Driver::default();
        while let Some((id, session, handlers, run)) = self.next_job()? {
            let Some(handler) = handlers.get(run.handler) else { continue };
            let core = Core::new(session, handler, &run, CommitPath::SimulatedWorld(self.clone(), id), None);
            // Nothing is locked here: the handler may commit, or use its session.
            let (began, cut) = (self.simulated.clock.at().mono, Cell::new(false));
            let result = call(handler, core, &run, &mut driver, real_timeout(run.timeout_ms, &cut));
            if let Some(timeout_ms) = run.timeout_ms.filter(|_| cut.get()) {
                self.simulated.clock.reach(began + timeout_ms);
            }
            let now = self.simulated.clock.at();
            if let Some(actor) = self.lock().all.get_mut(&id) {
                actor.worker.handle(now, Input::Finished { run: run.run, result });
            }
        }
        Ok(())
    }

    #[allow(clippy::type_complexity)]
    fn next_job(&self) -> Result<Option<(SimulatedWorkerId, Session, Arc<[Handler]>, HandlerRun)>> {
        let mut actors = self.lock();
        let now = self.simulated.clock.at();
        for actor in actors.all.values_mut() {
            if actor.worker.next_deadline().is_some_and(|at| at <= now.mono) {
                actor.worker.handle(now, Input::Tick);
            }
        }
        loop {
            for (id, actor) in &mut actors.all {
                self.carry_out(*id, actor);
            }
            let (news, delayed) =
                (std::mem::take(&mut *self.simulated.news()), self.simulated.take_delayed());
            if news.is_empty() && !delayed {
                break;
            }
            if delayed {
                actors.all.values_mut().for_each(|actor| actor.worker.handle(now, Input::Delayed));
            }
            for (id, actor) in &mut actors.all {
                let namespace = actor.session.namespace_name().as_str();
                let told =
                    news.iter().filter(|(topic, by)| *by != Some(*id) && topic.namespace() == namespace);
                let topics: Vec<_> = told.map(|(topic, _)| topic.clone()).collect();
                if !topics.is_empty() {
                    actor.worker.handle(now, Input::News { topics: Some(topics) });
                }
            }
        }
        let failed = actors.all.values().find_map(|actor| actor.stopped.clone().flatten());
        actors.all.retain(|_, actor| actor.stopped.is_none());
        if let Some(reason) = failed {
            return Err(SessionError::Store(StoreError::Poisoned(reason.into())));
        }
        let ready = actors.all.iter_mut().find(|(_, actor)| !actor.jobs.is_empty());
        let job = ready.and_then(|(id, actor)| {
            Some((*id, actor.session.clone(), actor.handlers.clone(), actor.jobs.pop_front()?))
        });
        Ok(job)
    }

    fn carry_out(&self, id: SimulatedWorkerId, actor: &mut SimulatedWorker) {
        loop {
            let effects = actor.worker.drain();
            if effects.is_empty() {
                return;
            }
            let now = self.simulated.clock.at();
            for effect in effects {
                match effect {
                    Effect::Commit { token, batch } => {
                        let committed = self.simulated.commit(batch, Some(id));
                        actor.worker.handle(now, worker_input(token, committed));
                    }
                    Effect::Read { token, query } => {
                        let result = read(&*self.simulated.store, &query);
                        actor.worker.handle(now, Input::ReadDone { token, result });
                    }
                    Effect::Run(run) => actor.jobs.push_back(run),
                    Effect::Cut { run } => self.cut(actor, run),
                    Effect::Answer { run, result } => {
                        actor.answers.insert(run, result);
                    }
                    Effect::Note(note) => log_note(&note, &actor.handlers),
                    Effect::Stopped { failed } => actor.stopped = Some(failed),
                }
            }
        }
    }

    /// Cuts off a run that still waits for its turn: it is not called at all. A run that is being called cannot be
    /// ended here.
    fn cut(&self, actor: &mut SimulatedWorker, run: RunId) {
        if let Some(waiting) = actor.jobs.iter().position(|job| job.run == run) {
            actor.jobs.remove(waiting);
            let result = Err(RunError::Failed("never called".to_owned()));
            actor.worker.handle(self.simulated.clock.at(), Input::Finished { run, result });
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Actors> {
        self.actors.lock()
    }
}

/// Completes after the timeout in real time, because an async handler waits in real time; virtual time follows.
async fn real_timeout(timeout_ms: Option<u64>, cut: &Cell<bool>) -> Result<(), Infallible> {
    match timeout_ms {
        Some(timeout_ms) => tokio::time::sleep(Duration::from_millis(timeout_ms)).await,
        None => std::future::pending().await,
    }
    cut.set(true);
    Ok(())
}

impl fmt::Debug for SimulatedWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedWorld").field("simulated", &self.simulated).finish_non_exhaustive()
    }
}
