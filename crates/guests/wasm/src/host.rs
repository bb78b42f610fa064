//! The host: runs instances of modules on one scheduler, which has a thread of its own.

pub(crate) mod blocking;
pub(crate) mod clock;
mod driver;
mod inbox;
mod launch;
pub(crate) mod observe;
pub(crate) mod outcome;
pub(crate) mod sleep;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use millrace_runs::RunsLimits;

use self::clock::Clock;
use self::driver::Driver;
use self::inbox::{CommandInbox, HostCommand};
pub use self::launch::{Instance, RunHandle, RunStart, RunStartError};
use self::observe::{ErrorSink, Observer};
use crate::guest::InstanceId;
use crate::handlers::Handlers;
use crate::instance::{InstanceState, InstantiateError};
use crate::limits::InstanceLimits;
use crate::module::{Compiler, LoadError, Module};

/// The settings of a new host.
pub struct HostOptions {
    pub clock: Clock,
    /// The scheduler's bounds, the fairness budget among them.
    pub limits: RunsLimits,
    /// Milliseconds of the host's clock after which a tick begins no further step, at least 1. Then timers, completions
    /// and commands are served. A virtual clock does not move within a tick, so its traces do not depend on this.
    pub tick_ms_max: u64,
    /// Calls of `fs` that occupy a thread at the same time, as many of `log` and `output`, and as many of `input`; at
    /// least 1. Further calls wait for their turn; the scheduler goes on meanwhile.
    pub blocking_calls_max: usize,
    /// Shuffles external completions of the same moment, in an order that follows from the seed.
    pub seed: Option<u64>,
    pub observer: Option<Observer>,
    pub error_sink: Option<ErrorSink>,
    /// Shares compiled modules with other hosts; `None` makes a new compiler.
    pub compiler: Option<Compiler>,
}

impl Default for HostOptions {
    fn default() -> Self {
        HostOptions {
            clock: Clock::default(),
            limits: RunsLimits::default(),
            tick_ms_max: 5,
            blocking_calls_max: 64,
            seed: None,
            observer: None,
            error_sink: None,
            compiler: None,
        }
    }
}

/// Why a host could not be started.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HostError {
    #[error("{0}")]
    Compiler(#[from] LoadError),
    #[error("cannot start the host's thread: {0}")]
    Thread(String),
}

/// The host's thread has ended, which happens only by a defect of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host has stopped")]
pub struct HostStopped;

/// Runs effect programs: see the crate's documentation. Clones are the same host. Runs that are active when the last
/// host, instance and run handle is dropped are cancelled.
#[derive(Clone)]
pub struct Host {
    pub(crate) state: Arc<HostState>,
}

pub(crate) struct HostState {
    pub(crate) inbox: Arc<CommandInbox>,
    compiler: Compiler,
}

impl Host {
    /// Starts a host, with a thread for its scheduler.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the machine is not supported or has no thread left.
    pub fn new(mut options: HostOptions) -> Result<Host, HostError> {
        let compiler = match options.compiler.take() {
            Some(compiler) => compiler,
            None => Compiler::new()?,
        };
        let inbox = Arc::new(CommandInbox::new(options.limits.runs_max));
        let driver = Driver::new(options, inbox.clone());
        driver::start(driver).map_err(|error| HostError::Thread(error.to_string()))?;
        Ok(Host { state: Arc::new(HostState { inbox, compiler }) })
    }

    /// Loads a module from its bytes: wasm, or the text format. Compiled once for equal bytes.
    ///
    /// # Errors
    ///
    /// [`LoadError`] says what is wrong with the module.
    pub fn load(&self, bytes: &[u8]) -> Result<Module, LoadError> {
        self.state.compiler.load(bytes)
    }

    /// Loads a `.wasm` or `.wat` file.
    ///
    /// # Errors
    ///
    /// [`LoadError`] says what is wrong with the file or the module.
    pub fn load_file(&self, path: &Path) -> Result<Module, LoadError> {
        self.state.compiler.load_file(path)
    }

    /// Makes an instance of a module with these handlers. All runs of an instance share its memory; runs that must not
    /// see one another need instances of their own.
    ///
    /// # Errors
    ///
    /// [`InstantiateError`] if the module does not start, or its exports are not those of an effect module.
    pub fn instantiate(
        &self,
        module: &Module,
        handlers: Handlers,
        limits: &InstanceLimits,
    ) -> Result<Instance, InstantiateError> {
        if !Arc::ptr_eq(&handlers.module, &module.info) {
            return Err(InstantiateError::OtherModule);
        }
        let state = Box::new(InstanceState::new(&self.state.compiler, module, limits)?);
        let id = InstanceId(self.state.inbox.next_instance());
        self.state.inbox.push(HostCommand::Add { id, state, handlers: handlers.slots })?;
        Ok(Instance::new(self.state.clone(), id, module.clone()))
    }
}

impl Drop for HostState {
    fn drop(&mut self) {
        // A host that has stopped already needs no command.
        let _ = self.inbox.push(HostCommand::Stop);
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

impl fmt::Debug for HostOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("HostOptions");
        debug.field("clock", &self.clock).field("limits", &self.limits).field("seed", &self.seed);
        debug.field("tick_ms_max", &self.tick_ms_max).field("blocking_calls_max", &self.blocking_calls_max);
        debug.finish_non_exhaustive()
    }
}
