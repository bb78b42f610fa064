//! A lane: one connection for one purpose, used by one caller at a time, with a deadline for every request.
//!
//! Each lane has a small runtime of its own, which runs on the thread of the caller: a placing shares neither a socket
//! nor a reactor with a long read. A connection is opened by the first request that needs it, and dropped after any
//! error; the next request opens another one.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millrace_journal::JournalError;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout_at;

use crate::address::PostgresAddress;
use crate::failure::{judged, refused, unknown};
use crate::fitness::{ServerSettings, fitness};
use crate::session::{Fault, Requests, Session};

/// Threads that look host names up. A lookup that hangs keeps one of them until the system gives it up.
const LOOKUP_THREADS_MAX: usize = 2;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    Placing,
    Reading,
    Keeping,
    Plain,
}

impl Purpose {
    /// The name under which `pg_stat_activity` shows the connection.
    pub(crate) fn application_name(self) -> &'static str {
        match self {
            Purpose::Placing => "millrace placing",
            Purpose::Reading => "millrace reading",
            Purpose::Keeping => "millrace keeping",
            Purpose::Plain => "millrace plain",
        }
    }
}

/// The state that the lanes of a journal share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) address: PostgresAddress,
    /// Whether `check` has told the caller that placed records are replicated.
    pub(crate) promised_replication: AtomicBool,
}

impl Engine {
    /// Refuses to go on with records on fewer machines than `check` has told the caller, who tells others. The next
    /// `check` promises what holds then.
    pub(crate) fn refuse_less_replication(&self, is_replicated: bool) -> Result<(), JournalError> {
        if is_replicated || !self.promised_replication.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(refused(
            "PostgreSQL no longer waits for a synchronous standby (synchronous_standby_names is empty, or \
             synchronous_commit is lower): records are on one machine's disk only, and more was promised"
                .to_owned(),
        ))
    }
}

pub(crate) struct Lane {
    purpose: Purpose,
    engine: Arc<Engine>,
    state: Mutex<LaneState>,
}

#[derive(Default)]
struct LaneState {
    runtime: Option<Runtime>,
    session: Option<Box<Session>>,
}

impl Lane {
    pub(crate) fn new(purpose: Purpose, engine: &Arc<Engine>) -> Lane {
        Lane { purpose, engine: engine.clone(), state: Mutex::default() }
    }

    /// Runs a request on the lane's connection. `doing` names it in errors.
    pub(crate) fn run<T: Send>(
        &self,
        doing: &'static str,
        work: impl AsyncFnOnce(&mut Requests) -> Result<T, Fault> + Send,
    ) -> Result<T, JournalError> {
        outside_tokio(|| {
            let deadline = Instant::now() + self.engine.address.timeout;
            let mut state = self.state.try_lock_until(deadline).ok_or_else(|| self.late(doing))?;
            self.run_locked(&mut state, deadline, doing, |found| self.still_fit(found), work)
        })?
    }

    /// Runs a request on a new connection, so that the settings of the server are those of now.
    pub(crate) fn run_anew<T: Send>(
        &self,
        doing: &'static str,
        work: impl AsyncFnOnce(&mut Requests) -> Result<T, Fault> + Send,
    ) -> Result<T, JournalError> {
        outside_tokio(|| {
            let deadline = Instant::now() + self.engine.address.timeout;
            let mut state = self.state.try_lock_until(deadline).ok_or_else(|| self.late(doing))?;
            state.session = None;
            self.run_locked(&mut state, deadline, doing, |found| fitness(found).map(drop), work)
        })?
    }

    /// Whether no other request is using the connection at the moment.
    pub(crate) fn is_idle(&self) -> bool {
        !self.state.is_locked()
    }

    fn run_locked<T>(
        &self,
        state: &mut LaneState,
        deadline: Instant,
        doing: &'static str,
        judge: impl FnOnce(&ServerSettings) -> Result<(), JournalError>,
        work: impl AsyncFnOnce(&mut Requests) -> Result<T, Fault>,
    ) -> Result<T, JournalError> {
        let LaneState { runtime, session } = state;
        let runtime = match runtime {
            Some(runtime) => runtime,
            None => runtime.insert(small_runtime()?),
        };
        // Put back only after a success, so that every way out but one drops the connection.
        let open = session.take();
        let whole = async {
            let mut open = match open {
                Some(open) => open,
                None => {
                    let new = Session::open(&self.engine.address, self.purpose).await?;
                    judge(new.settings())?;
                    Box::new(new)
                }
            };
            let answer = open.run(work).await.map_err(|fault| match fault {
                Fault::Driver(error) => judged(doing, &error),
                Fault::Judged(error) => error,
            })?;
            Ok((open, answer))
        };
        let outcome = runtime.block_on(async { timeout_at(deadline.into(), whole).await });
        let (open, answer) = outcome.unwrap_or_else(|_| Err(self.late(doing)))?;
        *session = Some(open);
        Ok(answer)
    }

    /// Judges the settings of a connection that replaces an earlier one. A server that accepts no writes is waited for:
    /// after a failover the address leads to the new primary sooner or later.
    fn still_fit(&self, found: &ServerSettings) -> Result<(), JournalError> {
        if let Some(reason) = found.why_no_writes() {
            return Err(unknown(reason.to_owned()));
        }
        self.engine.refuse_less_replication(fitness(found)?.is_replicated)
    }

    fn late(&self, doing: &str) -> JournalError {
        let timeout_ms = self.engine.address.timeout.as_millis();
        unknown(format!("{doing}: no answer from PostgreSQL within {timeout_ms} ms"))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(runtime) = self.state.get_mut().runtime.take() {
            // Does not wait for a name lookup that hangs, and may be called where waiting is forbidden.
            runtime.shutdown_background();
        }
    }
}

fn small_runtime() -> Result<Runtime, JournalError> {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(LOOKUP_THREADS_MAX)
        .thread_keep_alive(Duration::from_secs(1))
        .build()
        .map_err(|error| unknown(format!("cannot start a runtime: {error}")))
}

/// Runs blocking work where a runtime may be entered. A thread that belongs to a tokio runtime may not enter another
/// one, so a helper thread does it there.
fn outside_tokio<T: Send>(
    work: impl FnOnce() -> Result<T, JournalError> + Send,
) -> Result<Result<T, JournalError>, JournalError> {
    if Handle::try_current().is_err() {
        return Ok(work());
    }
    thread::scope(|scope| {
        let helper = thread::Builder::new().name("millrace-postgres".to_owned()).spawn_scoped(scope, work);
        let helper = helper.map_err(|error| unknown(format!("cannot start a thread: {error}")))?;
        Ok(helper.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}
