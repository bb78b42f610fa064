//! The host's thread: it drives the scheduler, calls handlers, and waits for whatever comes next.
//!
//! A turn: commands, then a tick of the scheduler with its steps, then the futures of handlers. A turn that leaves
//! nothing to do waits; under a virtual clock it moves the clock to the next timer instead.

mod answers;
mod effects;
mod futures;
mod turn;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::thread;

use futures_util::future::AbortHandle;
use millrace_model::Mono;
use millrace_runs::{Answer, CallId, RunId, Runs, RunsLimits};

use self::futures::HandlerFutures;
use super::clock::{Clock, HostClock};
use super::inbox::Inbox;
use super::launch::{CellGuard, Launch};
use super::observe::{ErrorSink, Observer, RunEvent};
use super::outcome::RunNumber;
use super::sleep::Sleeps;
use crate::call::CallTools;
use crate::guest::{InstanceId, Instances, WasmGuest};
use crate::handlers::HandlerSlot;
use crate::module::Module;
use crate::value::Value;

/// Polls of handlers' futures in one turn; those beyond wait for the next turn, after the scheduler had its tick.
const POLLS_PER_TURN_MAX: usize = 1_024;

/// See the file's documentation.
pub(crate) struct Driver {
    runs: Runs<WasmGuest>,
    instances: Instances,
    /// Handlers and run counts of each instance.
    hosted: BTreeMap<InstanceId, Hosted>,
    /// Active runs by their serial number. Looked up, never iterated.
    entries: HashMap<u64, RunEntry>,
    /// Runs that the scheduler had no room for, in their order. Bounded by `runs_max`, as the inbox counts them.
    waiting_starts: VecDeque<Launch>,
    /// When runs are to be cancelled.
    cancels: BTreeMap<(Mono, u64), RunId>,
    handlers: HandlerFutures,
    /// Answers that the scheduler's external queue had no room for. No future is polled while there are any.
    deferred: VecDeque<(CallId, Answer<Value>)>,
    inbox: Arc<Inbox>,
    tools: Arc<CallTools>,
    observer: Option<Observer>,
    error_sink: Option<ErrorSink>,
}

struct Hosted {
    handlers: Vec<HandlerSlot>,
    active_runs: usize,
    /// No handle is left: to be freed when its last run has ended.
    unused: bool,
}

struct RunEntry {
    id: RunId,
    instance: InstanceId,
    export: Arc<str>,
    module: Module,
    cell: CellGuard,
    cancel_at: Option<Mono>,
    /// The operation whose handler is at work, and how to stop its future.
    working: Option<(u32, Option<AbortHandle>)>,
}

impl Driver {
    pub(crate) fn new(clock: Clock, limits: RunsLimits, seed: Option<u64>, inbox: Arc<Inbox>) -> Driver {
        let runs = Runs::new(limits);
        let runs = match seed {
            Some(seed) => runs.shuffled(seed),
            None => runs,
        };
        let clock = HostClock::start(clock, inbox.wake.clone());
        let tools = Arc::new(CallTools { clock, sleeps: Sleeps::new(inbox.wake.clone()) });
        Driver {
            runs,
            instances: Instances::new(),
            hosted: BTreeMap::new(),
            entries: HashMap::new(),
            waiting_starts: VecDeque::new(),
            cancels: BTreeMap::new(),
            handlers: HandlerFutures::default(),
            deferred: VecDeque::new(),
            inbox,
            tools,
            observer: None,
            error_sink: None,
        }
    }

    pub(crate) fn observed_by(mut self, observer: Option<Observer>, error_sink: Option<ErrorSink>) -> Driver {
        self.observer = observer;
        self.error_sink = error_sink;
        self
    }

    fn now(&self) -> Mono {
        self.tools.clock.now()
    }

    fn observe(&mut self, event: RunEvent<'_>) {
        tell(&mut self.observer, event);
    }
}

/// Observers are other people's code: their panic must not end the host.
fn tell(observer: &mut Option<Observer>, event: RunEvent<'_>) {
    if let Some(observer) = observer {
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| observer(event)));
        if told.is_err() {
            tracing::error!("the observer of effect runs panicked");
        }
    }
}

impl RunEntry {
    fn number(&self) -> RunNumber {
        self.id.into()
    }
}

/// Refuses further commands and lets go of everybody who waits, however the thread ends.
struct StopInbox(Arc<Inbox>);

impl Drop for StopInbox {
    fn drop(&mut self) {
        drop(self.0.stop());
    }
}

/// Starts the thread.
pub(super) fn start(driver: Driver) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stop = StopInbox(driver.inbox.clone());
    let run = move || {
        let _stop = stop;
        runtime.block_on(driver.run());
    };
    thread::Builder::new().name("millrace-runs".into()).spawn(run).map(drop)
}
