//! Runs a session, on the caller's thread or on a thread of its own.

use std::sync::Arc;
use std::thread::JoinHandle;

use millrace_claims::{Input, Worker};

use super::mailbox::{Mail, Mailbox};
use super::run_loop::RunLoop;
use super::signals;
use crate::Config;
use crate::error::{Result, SessionError};
use crate::schedule::Schedule;
use crate::session::{Commits, Session};
use crate::typed::Handler;

/// Stops a running session, from any thread. Clones stop the same session.
#[derive(Clone, Debug)]
pub struct StopHandle(Arc<Mailbox>);

impl StopHandle {
    /// Stops the session. Waits at most `stop_grace_ms` for running handlers: those that still run then are cut off,
    /// and their events are given back like everything unstarted, without counting an attempt. A plain handler that
    /// does not return is left behind with its thread, and cannot commit any more.
    pub fn stop(&self) {
        self.0.push(Mail::Input(Input::Stop));
    }
}

/// A session that runs on a thread of its own. Dropping this stops the session and waits for it.
#[derive(Debug)]
pub struct Running {
    stop: StopHandle,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Running {
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Stops the session and waits until it has stopped.
    pub fn stop(mut self) -> Result<()> {
        self.stop.stop();
        self.wait()
    }

    /// Waits until the session is stopped, or its store fails.
    pub fn join(mut self) -> Result<()> {
        self.wait()
    }

    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn wait(&mut self) -> Result<()> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(SessionError::Panicked),
            None => Ok(()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Err(error) = self.wait() {
            tracing::error!(%error, "the session ended badly");
        }
    }
}

impl Session {
    /// Runs handlers and schedules until Ctrl+C, SIGTERM, a [`StopHandle`], or a failure of the store.
    ///
    /// The first signal stops gracefully, a second one ends the process at once.
    pub fn run(&self, handlers: Vec<Handler>, schedules: Vec<Schedule>) -> Result<()> {
        self.run_with(handlers, schedules, |_| ())
    }

    /// Runs in the same way, and calls `started` with the stop handle before the first event is claimed.
    pub fn run_with(
        &self,
        handlers: Vec<Handler>,
        schedules: Vec<Schedule>,
        started: impl FnOnce(StopHandle),
    ) -> Result<()> {
        let (run_loop, stop) = self.prepare(handlers, schedules, false)?;
        let _listening = signals::listen(&stop)?;
        started(stop);
        run_loop.run()
    }

    /// Runs on a thread of its own, and ignores signals.
    pub fn spawn(&self, handlers: Vec<Handler>, schedules: Vec<Schedule>) -> Result<Running> {
        let (run_loop, stop) = self.prepare(handlers, schedules, false)?;
        let thread = std::thread::Builder::new().name("millrace-session".to_owned());
        let thread = thread.spawn(move || run_loop.run()).map_err(SessionError::Thread)?;
        Ok(Running { stop, thread: Some(thread) })
    }

    /// Runs until there is nothing to do now, then stops. Does not wait for events that are due for another attempt
    /// later.
    pub fn run_until_idle(&self, handlers: Vec<Handler>, schedules: Vec<Schedule>) -> Result<()> {
        self.prepare(handlers, schedules, true)?.0.run()
    }

    fn prepare(
        &self,
        handlers: Vec<Handler>,
        schedules: Vec<Schedule>,
        until_idle: bool,
    ) -> Result<(RunLoop, StopHandle)> {
        let Commits::Threaded(committer) = self.commits() else { return Err(SessionError::Simulated) };
        let worker = self.worker(self.settings().clone(), &handlers, schedules)?;
        let mailbox = Arc::new(Mailbox::default());
        committer.listen(&mailbox);
        let run_loop = RunLoop::new(
            self.clone(),
            committer.clone(),
            worker,
            handlers.into(),
            mailbox.clone(),
            until_idle,
        )?;
        Ok((run_loop, StopHandle(mailbox)))
    }

    /// Makes the engine for these handlers.
    pub(crate) fn worker(
        &self,
        config: Config,
        handlers: &[Handler],
        schedules: Vec<Schedule>,
    ) -> Result<Worker> {
        let taken = handlers.iter().map(Handler::event_name);
        taken.chain(schedules.iter().map(Schedule::event_name)).try_for_each(|name| self.know_event(name))?;
        let specs = handlers.iter().map(Handler::spec).collect::<Result<_, _>>()?;
        let schedules = schedules.into_iter().map(Schedule::into_spec).collect();
        Ok(Worker::new(config, self.identity(), specs, schedules, self.draw())?)
    }
}
