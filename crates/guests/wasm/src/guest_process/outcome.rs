//! How a guest ended.

use super::limits::GuestLimits;
use super::state::Unwound;

/// How a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestOutcome {
    /// `main` returned this; 0 if `main` has no result.
    Returned(i32),
    /// [`super::GuestStopper::stop`] was called, or its [`super::GuestProcess`] was dropped.
    Stopped,
    Failed(GuestFailure),
}

/// Why a guest did not end by returning from `main`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuestFailure {
    /// None of the guest's code ran: its memory or its data do not fit.
    #[error("the guest did not start: {0}")]
    NotStarted(String),
    #[error("the guest trapped: {message}{}", place(*.offset, .function.as_deref()))]
    Trapped {
        message: String,
        /// The name or the index of the function.
        function: Option<String>,
        /// Bytes from the start of the module.
        offset: Option<usize>,
    },
    #[error(
        "the guest was stopped: it computed for {max_ms} ms without a call, which is the limit (step_ms_max)"
    )]
    StepTooLong { max_ms: u64 },
    #[error("the guest was stopped: it has run for {max_ms} ms, which is the limit (wall_ms_max)")]
    TooLong { max_ms: u64 },
    /// A defect of the host; the guest's thread has ended, other guests go on.
    #[error("the host of the guest failed: this is a defect, please report it")]
    HostFailed,
}

fn place(offset: Option<usize>, function: Option<&str>) -> String {
    let function = function.map(|function| format!(" in {function}")).unwrap_or_default();
    let offset = offset.map(|offset| format!(", {offset:#x} bytes into the module")).unwrap_or_default();
    format!("{function}{offset}")
}

impl GuestOutcome {
    /// Classifies the error that came out of the guest's code.
    pub(super) fn of_error(error: &wasmtime::Error, limits: &GuestLimits) -> GuestOutcome {
        match error.downcast_ref::<Unwound>() {
            Some(Unwound::Stopped) => return GuestOutcome::Stopped,
            Some(Unwound::StepTooLong) => {
                return GuestOutcome::Failed(GuestFailure::StepTooLong { max_ms: limits.step_ms_max });
            }
            None => {}
        }
        let backtrace = error.downcast_ref::<wasmtime::WasmBacktrace>();
        let trap = error.downcast_ref::<wasmtime::Trap>();
        if backtrace.is_none() && trap.is_none() {
            return GuestOutcome::Failed(GuestFailure::NotStarted(format!("{error:#}")));
        }
        let frame = backtrace.and_then(|backtrace| backtrace.frames().first());
        let function = frame.map(|frame| match frame.func_name() {
            Some(name) => name.to_owned(),
            None => format!("function {}", frame.func_index()),
        });
        let message = trap.map_or_else(|| error.root_cause().to_string(), ToString::to_string);
        GuestOutcome::Failed(GuestFailure::Trapped {
            message: message.strip_prefix("wasm trap: ").unwrap_or(&message).to_owned(),
            function,
            offset: frame.and_then(wasmtime::FrameInfo::module_offset),
        })
    }
}
