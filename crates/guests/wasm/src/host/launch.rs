//! Starting runs, and the handles by which callers follow and cancel them.

use std::fmt;
use std::sync::Arc;

use wasmtime::ExternType;

use super::inbox::HostCommand;
use super::outcome::{EffectOutcome, OutcomeCell, RunNumber};
use super::{HostState, HostStopped};
use crate::codec::ProtocolError;
use crate::guest::{GuestEntry, InstanceId, WasmGuest};
use crate::limits::RunLimits;
use crate::module::{Module, export_names, is_protocol_export};
use crate::pure;
use crate::value::Value;

/// The description of a run to be started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunStart {
    /// The export's name, with or without `_effectful`.
    pub export: String,
    pub args: Vec<Value>,
    pub limits: RunLimits,
    /// Cancels the run this long after its start, on the host's clock.
    pub cancel_after_ms: Option<u64>,
}

impl RunStart {
    pub fn new(export: impl Into<String>, args: Vec<Value>) -> RunStart {
        RunStart { export: export.into(), args, ..RunStart::default() }
    }
}

/// Why a run was not started. A refused run has no number and no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunStartError {
    #[error("Missing export {name}; the module has {known}")]
    MissingExport { name: String, known: String },
    #[error("{0}")]
    Arguments(#[from] ProtocolError),
    #[error(
        "{max} runs are active, which is the limit (runs_max): start this run when another one has ended"
    )]
    TooManyRuns { max: usize },
    #[error("{0}")]
    Stopped(#[from] HostStopped),
}

/// A run on its way to the scheduler.
pub(crate) struct Launch {
    pub(crate) number: RunNumber,
    pub(crate) guest: WasmGuest,
    pub(crate) module: Module,
    pub(crate) cell: CellGuard,
    pub(crate) cancel_after_ms: Option<u64>,
}

/// Cancels the run if it is dropped without an outcome, so that nobody waits for ever.
pub(crate) struct CellGuard(pub(crate) Arc<OutcomeCell>);

impl Drop for CellGuard {
    fn drop(&mut self) {
        self.0.decide(EffectOutcome::Cancelled { reason: Some(Value::from("the host has stopped")) });
        self.0.publish();
    }
}

/// An instance of a module on a host. Clones are the same instance; it is freed when the last one is dropped and its
/// runs have ended.
#[derive(Clone)]
pub struct Instance(Arc<InstanceHandle>);

struct InstanceHandle {
    host: Arc<HostState>,
    id: InstanceId,
    module: Module,
}

impl Instance {
    pub(super) fn new(host: Arc<HostState>, id: InstanceId, module: Module) -> Instance {
        Instance(Arc::new(InstanceHandle { host, id, module }))
    }

    pub fn module(&self) -> &Module {
        &self.0.module
    }

    /// Starts a run of an export with the default limits. An export that asks for no effects is called directly, if it
    /// takes and returns plain numbers.
    ///
    /// # Errors
    ///
    /// [`RunStartError`] if there is no such export, the arguments do not fit it, or the host has no room.
    pub fn start(&self, export: &str, args: Vec<Value>) -> Result<RunHandle, RunStartError> {
        self.start_run(RunStart::new(export, args))
    }

    /// Starts a run with its own limits.
    ///
    /// # Errors
    ///
    /// As [`Instance::start`].
    pub fn start_run(&self, start: RunStart) -> Result<RunHandle, RunStartError> {
        self.start_all(vec![start])?.pop().ok_or_else(|| HostStopped.into())
    }

    /// Starts several runs at once: the scheduler takes no step before all of them are there, so their order does not
    /// depend on the speed of threads.
    ///
    /// # Errors
    ///
    /// As [`Instance::start`]; none is started then.
    pub fn start_all(&self, starts: Vec<RunStart>) -> Result<Vec<RunHandle>, RunStartError> {
        let launches = starts.into_iter().map(|start| self.launch(start)).collect::<Result<Vec<_>, _>>()?;
        let cells: Vec<Arc<OutcomeCell>> = launches.iter().map(|launch| launch.cell.0.clone()).collect();
        let numbers = self.0.host.inbox.push_starts(launches)?;
        let host = &self.0.host;
        Ok(numbers
            .into_iter()
            .zip(cells)
            .map(|(id, cell)| RunHandle { id, cell, host: host.clone() })
            .collect())
    }

    fn launch(&self, start: RunStart) -> Result<Launch, RunStartError> {
        let Module { info, code } = &self.0.module;
        let (export, function) = export_names(&start.export);
        let entry = match (code.get_export(&function), code.get_export(export)) {
            // For example `resume`: its function continues runs and begins none.
            (Some(_), _) if is_protocol_export(&function) => return Err(self.missing(function)),
            (Some(_), _) => {
                let mut payload = Vec::new();
                info.codec.seam().entry(export, start.args, &mut payload)?;
                GuestEntry::Effectful { function, payload }
            }
            (None, Some(ExternType::Func(ty))) if !is_protocol_export(export) => {
                GuestEntry::Pure { args: pure::arguments(export, &ty, start.args)? }
            }
            _ => return Err(self.missing(function)),
        };
        let guest = WasmGuest {
            instance: self.0.id,
            export: export.into(),
            entry,
            limits: start.limits,
            buffer: None,
            suspended: None,
        };
        Ok(Launch {
            number: RunNumber(0),
            guest,
            module: self.0.module.clone(),
            cell: CellGuard(Arc::default()),
            cancel_after_ms: start.cancel_after_ms,
        })
    }
}

impl Instance {
    fn missing(&self, name: String) -> RunStartError {
        let known = self.0.module.effectful_exports();
        let known = if known.is_empty() { "no effectful exports".to_owned() } else { known.join(", ") };
        RunStartError::MissingExport { name, known }
    }
}

impl Drop for InstanceHandle {
    fn drop(&mut self) {
        // A host that has stopped has no instances.
        let _ = self.host.inbox.push(HostCommand::Remove { id: self.id });
    }
}

/// A run that was started. Dropping it lets the run go on.
#[derive(Clone)]
pub struct RunHandle {
    id: RunNumber,
    cell: Arc<OutcomeCell>,
    host: Arc<HostState>,
}

impl RunHandle {
    pub fn id(&self) -> RunNumber {
        self.id
    }

    /// Waits for the run's outcome.
    pub async fn outcome(&self) -> EffectOutcome {
        self.cell.wait().await
    }

    /// Waits for the run's outcome and blocks the thread meanwhile. A handler must never call it: its own thread is the
    /// one that would have to make progress.
    pub fn wait(&self) -> EffectOutcome {
        self.cell.wait_blocking()
    }

    /// Returns the outcome if there is one.
    pub fn try_outcome(&self) -> Option<EffectOutcome> {
        self.cell.get()
    }

    /// Cancels the run. Its program is not resumed, its handlers are not called any more, and their late answers are
    /// dropped. Returns false, and changes nothing, if the run had ended or was cancelled before. The outcome is
    /// decided at once, and becomes visible when the host's thread has released the run. A step in progress is not cut
    /// off, because the runs of an instance share its memory: it ends by itself, or by [`RunLimits`].
    pub fn cancel(&self, reason: Option<Value>) -> bool {
        let accepted = self.cell.decide(EffectOutcome::Cancelled { reason });
        if accepted {
            // A host that has stopped runs nothing.
            let _ = self.host.inbox.push(HostCommand::Cancel { run: self.id });
        } else {
            self.host.inbox.push_refused_cancel(self.id);
        }
        accepted
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").field("module", &self.0.module).finish_non_exhaustive()
    }
}

impl fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunHandle")
            .field("id", &self.id)
            .field("outcome", &self.try_outcome())
            .finish_non_exhaustive()
    }
}
