//! The host's thread: drives the scheduler, calls handlers, and waits for what comes next.
//!
//! A turn: commands, then a tick of the scheduler with its steps, then the futures of handlers. The steps end with the
//! scheduler's budget, with the time of a tick, or when a command cancels a run. After a turn that leaves nothing to do
//! the thread waits; under a virtual clock it moves the clock to the next timer instead.

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
use millrace_runs::{Answer, CallId, RunId, Runs};

use self::futures::HandlerFutures;
use super::HostOptions;
use super::blocking::BlockingPlaces;
use super::clock::HostClock;
use super::inbox::CommandInbox;
use super::launch::{CellGuard, Launch};
use super::observe::{ErrorSink, Observer, RunEvent};
use super::outcome::RunNumber;
use super::sleep::Sleeps;
use crate::call::CallTools;
use crate::guest::{InstanceId, Instances, WasmGuest};
use crate::handlers::HandlerSlot;
use crate::module::Module;
use crate::value::Value;

/// Polls of handlers' futures in one turn; futures beyond that wait for the next turn, after the scheduler's tick.
const POLLS_PER_TURN_MAX: usize = 1_024;

/// The state of the host's thread.
pub(crate) struct Driver {
    runs: Runs<WasmGuest>,
    instances: Instances,
    /// Handlers and run counts of each instance.
    hosted: BTreeMap<InstanceId, Hosted>,
    /// Active runs by their serial number. Looked up, never iterated.
    entries: HashMap<u64, RunEntry>,
    /// Runs that the scheduler had no room for, in their order. Bounded by `runs_max`, because the inbox counts them.
    waiting_starts: VecDeque<Launch>,
    /// When runs are to be cancelled.
    cancels: BTreeMap<(Mono, u64), RunId>,
    handlers: HandlerFutures,
    /// Answers that found the scheduler's external queue full. No future is polled while there are any.
    deferred: VecDeque<(CallId, Answer<Value>)>,
    inbox: Arc<CommandInbox>,
    tools: Arc<CallTools>,
    /// See [`HostOptions::tick_ms_max`].
    tick_ms_max: u64,
    observer: Option<Observer>,
    error_sink: Option<ErrorSink>,
}

struct Hosted {
    handlers: Vec<HandlerSlot>,
    active_runs: usize,
    /// No handle is left: the instance is freed when its last run has ended.
    unused: bool,
}

struct RunEntry {
    id: RunId,
    instance: InstanceId,
    export: Arc<str>,
    module: Module,
    cell: CellGuard,
    cancel_at: Option<Mono>,
    /// The observer has been told that the run is cancelled.
    cancel_is_told: bool,
    /// The operation whose handler is working, and the handle that stops its future.
    working: Option<(u32, Option<AbortHandle>)>,
}

impl Driver {
    pub(crate) fn new(options: HostOptions, inbox: Arc<CommandInbox>) -> Driver {
        let runs = Runs::new(options.limits);
        let runs = match options.seed {
            Some(seed) => runs.shuffled(seed),
            None => runs,
        };
        let clock = HostClock::start(options.clock, inbox.wake.clone());
        let sleeps = Sleeps::new(inbox.wake.clone());
        let blocking = BlockingPlaces::new(options.blocking_calls_max);
        let tools = Arc::new(CallTools { clock, sleeps, blocking });
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
            tick_ms_max: options.tick_ms_max.max(1),
            observer: options.observer,
            error_sink: options.error_sink,
        }
    }

    fn now(&self) -> Mono {
        self.tools.clock.now()
    }

    fn observe(&mut self, event: RunEvent<'_>) {
        tell(&mut self.observer, event);
    }
}

/// Calls the observer. Its code is the embedder's: a panic in it must not end the host.
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

/// When dropped, refuses further commands and releases everybody who waits, however the thread ends.
struct StopInbox(Arc<CommandInbox>);

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
