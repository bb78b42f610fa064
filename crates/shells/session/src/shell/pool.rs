//! The threads that call handlers: as many as `handler_concurrency`, and one more for each hanging handler whose place
//! the engine has given to another run. The engine never starts more runs than that.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use millrace_claims::{HandlerRun, Input, RunError, RunId};
use millrace_model::Event;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::call::{Driver, call};
use super::mailbox::{Mail, Mailbox};
use crate::context::{CommitPath, Core};
use crate::session::Session;
use crate::traces::RunTrace;
use crate::typed::Handler;

/// How long the end waits for async handlers that were cut off: they end as soon as their thread gets a core.
const CUT_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Pool {
    shared: PoolShared,
    threads: BTreeMap<u64, JoinHandle<()>>,
    started: u64,
}

/// The data that every thread has.
#[derive(Clone, Debug)]
struct PoolShared {
    session: Session,
    handlers: Arc<[Handler]>,
    mailbox: Arc<Mailbox>,
    jobs: Arc<PoolJobs>,
}

#[derive(Debug, Default)]
struct PoolJobs {
    state: Mutex<PoolState>,
    /// Signals that there is a run, or that the end has come.
    wake: Condvar,
    /// Signals that a call has returned.
    returned: Condvar,
}

#[derive(Debug, Default)]
struct PoolState {
    queue: VecDeque<HandlerRun>,
    calls: BTreeMap<RunId, CallUnderWay>,
    threads: usize,
    /// If more threads than this wait for runs, the surplus ones end.
    idle_max: usize,
    ended: bool,
}

/// A call under way.
#[derive(Debug)]
struct CallUnderWay {
    thread: u64,
    handler: usize,
    event: Arc<Event>,
    cut: Option<oneshot::Sender<()>>,
}

impl PoolJobs {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock()
    }

    /// Waits for the next run; also returns the signal that cuts it off. Returns `None` at the end, or when there are
    /// enough threads without this one.
    fn next_run(&self, thread: u64) -> Option<(HandlerRun, oneshot::Receiver<()>)> {
        let mut state = self.lock();
        loop {
            if let Some(run) = state.queue.pop_front() {
                let (cut, is_cut) = oneshot::channel();
                let (handler, event) = (run.handler, run.event.clone());
                state.calls.insert(run.run, CallUnderWay { thread, handler, event, cut: Some(cut) });
                return Some((run, is_cut));
            }
            if state.ended || state.free() > state.idle_max {
                state.threads -= 1;
                return None;
            }
            self.wake.wait(&mut state);
        }
    }

    /// Marks a call as returned. Must be called before the engine is told, so that a run which it starts then finds
    /// this thread free.
    fn returned(&self, run: RunId) {
        self.lock().calls.remove(&run);
        self.returned.notify_all();
    }
}

impl PoolState {
    /// Returns the number of threads that are in no call.
    fn free(&self) -> usize {
        self.threads.saturating_sub(self.calls.len())
    }
}

impl Pool {
    pub(super) fn start(
        session: &Session,
        handlers: &Arc<[Handler]>,
        mailbox: &Arc<Mailbox>,
        threads: usize,
    ) -> std::io::Result<Pool> {
        let (session, handlers, mailbox) = (session.clone(), handlers.clone(), mailbox.clone());
        let shared = PoolShared { session, handlers, mailbox, jobs: Arc::default() };
        shared.jobs.lock().idle_max = threads;
        let mut pool = Pool { shared, threads: BTreeMap::new(), started: 0 };
        for _ in 0..threads {
            pool.add_thread()?;
        }
        Ok(pool)
    }

    fn add_thread(&mut self) -> std::io::Result<()> {
        self.threads.retain(|_, thread| !thread.is_finished());
        self.started += 1;
        let (number, shared) = (self.started, self.shared.clone());
        self.shared.jobs.lock().threads += 1;
        let thread = std::thread::Builder::new().name(format!("millrace-handler-{number}"));
        let spawned = thread.spawn(move || shared.work(number));
        if spawned.is_err() {
            self.shared.jobs.lock().threads -= 1;
        }
        self.threads.insert(number, spawned?);
        Ok(())
    }

    pub(super) fn submit(&mut self, runs: Vec<HandlerRun>) {
        let count = runs.len();
        if count == 0 {
            return;
        }
        let mut state = self.shared.jobs.lock();
        state.queue.extend(runs);
        let missing = state.queue.len().saturating_sub(state.free());
        drop(state);
        for _ in 0..count {
            self.shared.jobs.wake.notify_one();
        }
        for _ in 0..missing {
            if let Err(error) = self.add_thread() {
                tracing::error!(%error, "no thread in place of one whose handler hangs: its runs wait for the others");
            }
        }
    }

    /// Ends the call at the point where its handler waits, if it is async.
    pub(super) fn cut(&self, run: RunId) {
        let mut state = self.shared.jobs.lock();
        let cut = state.calls.get_mut(&run).and_then(|call| call.cut.take());
        // The receiver is gone if the call has just returned.
        let _ = cut.map(|cut| cut.send(()));
        // A run that was cut off before a thread was free for it is not called at all.
        let queued = state.queue.iter().position(|queued| queued.run == run);
        if let Some(queued) = queued {
            state.queue.remove(queued);
            drop(state);
            let result = Err(RunError::Failed("never called".to_owned()));
            self.shared.mailbox.push(Mail::Input(Input::Finished { run, result }));
        }
    }

    /// Waits at most `patience` for calls to return, a little longer for async ones that were cut off, and leaves the
    /// others behind. Commits of those are refused from now on.
    pub(super) fn shut_down(mut self, patience: Duration) {
        let jobs = self.shared.jobs.clone();
        let mut state = jobs.lock();
        state.ended = true;
        jobs.wake.notify_all();
        let handlers = &self.shared.handlers;
        let is_async = |call: &CallUnderWay| handlers.get(call.handler).is_some_and(Handler::is_async);
        let running = |state: &mut PoolState| !state.calls.is_empty();
        jobs.returned.wait_while_for(&mut state, running, patience);
        for call in state.calls.values_mut() {
            let _ = call.cut.take().map(|cut| cut.send(()));
        }
        jobs.returned.wait_while_for(&mut state, |state| state.calls.values().any(is_async), CUT_WAIT);
        for call in state.calls.values() {
            let handler = handlers.get(call.handler).map_or("?", |handler| handler.id.as_str());
            tracing::error!(
                handler, event = %call.event.id,
                "the session ends without a handler that has not returned: its thread is left behind, it can commit nothing"
            );
            self.threads.remove(&call.thread);
        }
        drop(state);
        for thread in std::mem::take(&mut self.threads).into_values() {
            // Handlers' panics are caught; nobody is left to be told of any other failure here.
            let _ = thread.join();
        }
    }
}

impl Drop for Pool {
    /// For a session that never ran: its threads end when they see this.
    fn drop(&mut self) {
        self.shared.jobs.lock().ended = true;
        self.shared.jobs.wake.notify_all();
    }
}

impl PoolShared {
    fn work(self, thread: u64) {
        let PoolShared { session, handlers, mailbox, jobs } = self;
        let mut driver = Driver::default();
        while let Some((run, cut)) = jobs.next_run(thread) {
            let Some(handler) = handlers.get(run.handler) else {
                jobs.returned(run.run);
                continue;
            };
            let trace = RunTrace::begin(session.tracer(), &run);
            let headers = trace.as_ref().map(|trace| trace.headers(&run));
            let core = Core::new(session.clone(), handler, &run, CommitPath::Loop(mailbox.clone()), headers);
            let result = call(handler, core, &run, &mut driver, cut);
            if let Some(trace) = trace {
                trace.end(&handler.id, session.id(), &run, &result);
            }
            jobs.returned(run.run);
            mailbox.push(Mail::Input(Input::Finished { run: run.run, result }));
        }
    }
}
