//! The threads that call handlers: as many as `handler_concurrency`. The engine never starts more runs than that.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use millrace_claims::{Input, Run};

use super::call::{Driver, call};
use super::mailbox::{Mail, Mailbox};
use crate::context::{Core, Link};
use crate::session::Session;
use crate::typed::Handler;

#[derive(Debug)]
pub(super) struct Pool {
    jobs: Arc<Jobs>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Jobs {
    queue: Mutex<(VecDeque<Run>, bool)>,
    wake: Condvar,
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<Run>, bool)> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` at the end.
    fn take(&self) -> Option<Run> {
        let idle = |queue: &mut (VecDeque<Run>, bool)| queue.0.is_empty() && !queue.1;
        self.wake.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner).0.pop_front()
    }
}

impl Pool {
    pub(super) fn start(
        session: &Session,
        handlers: &Arc<[Handler]>,
        mailbox: &Arc<Mailbox>,
        threads: usize,
    ) -> std::io::Result<Pool> {
        let mut pool = Pool { jobs: Arc::default(), threads: Vec::new() };
        for number in 0..threads {
            let (session, handlers, mailbox) = (session.clone(), handlers.clone(), mailbox.clone());
            let jobs = pool.jobs.clone();
            let thread = std::thread::Builder::new().name(format!("millrace-handler-{number}"));
            pool.threads.push(thread.spawn(move || work(&jobs, &session, &handlers, &mailbox))?);
        }
        Ok(pool)
    }

    pub(super) fn give(&self, runs: Vec<Run>) {
        let count = runs.len();
        if count > 0 {
            self.jobs.lock().0.extend(runs);
            (0..count).for_each(|_| self.jobs.wake.notify_one());
        }
    }
}

impl Drop for Pool {
    /// Handlers that run are waited for; what they commit from now on is refused.
    fn drop(&mut self) {
        self.jobs.lock().1 = true;
        self.jobs.wake.notify_all();
        for thread in self.threads.drain(..) {
            // Handlers' panics are caught; what is left to fail here has nobody to be reported to.
            let _ = thread.join();
        }
    }
}

fn work(jobs: &Jobs, session: &Session, handlers: &[Handler], mailbox: &Arc<Mailbox>) {
    let mut driver = Driver::default();
    while let Some(run) = jobs.take() {
        let Some(handler) = handlers.get(run.handler) else { continue };
        let core = Core::new(session.clone(), handler, &run, Link::Loop(mailbox.clone()));
        let result = call(handler, core, &run, &mut driver);
        mailbox.push(Mail::Input(Input::Finished { run: run.run, result }));
    }
}
