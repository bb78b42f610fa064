//! Why a run failed: faults of guests with their diagnostics, and the texts of both generations.

use std::fmt;
use std::sync::Arc;

use millrace_runs::{ResumeKind, RunError};
use serde_json::{Value as Json, json};

use crate::codec::{Generation, ProtocolError};

/// Why a guest cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuestFault {
    #[error("{0}")]
    Trap(Box<TrapReport>),
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    #[error(
        "the guest used more than {max} units of fuel in one step without asking for an effect or returning \
         (step_fuel_max)"
    )]
    OutOfFuel { max: u64 },
    #[error(
        "the guest ran for more than {max_ms} ms in one step without asking for an effect or returning \
         (step_wall_ms_max)"
    )]
    StepTooLong { max_ms: u64 },
    #[error(
        "memory memory grow failed: no room for the run's buffer of {buffer_bytes} bytes (memory_bytes_max)"
    )]
    NoRoomForBuffer { buffer_bytes: u32 },
    /// The module's functions refused the host's call, such as a continuation of the wrong type.
    #[error("{0}")]
    Refused(String),
    #[error("the instance of this run is gone")]
    InstanceGone,
}

/// A trap, and where it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrapReport {
    /// The trap in words, such as `wasm trap: wasm `unreachable` instruction executed`.
    pub message: String,
    /// The text of the program's panic (generation B).
    pub panic: Option<String>,
    /// The innermost function, by its index in the module.
    pub function_index: Option<u32>,
    /// Bytes from the start of the module to the instruction.
    pub module_offset: Option<usize>,
    /// The effect whose reply was being delivered.
    pub effect: Option<TrapEffect>,
    /// The function the host had called.
    pub transition: Transition,
}

/// The effect in a trap's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrapEffect {
    pub effect_id: Arc<str>,
    pub op_id: u32,
    pub label: Arc<str>,
    pub kind: ResumeKind,
}

/// Where control passed between host and module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The module's start function or `init_effects`, before any run.
    Start,
    EffectfulEntry,
    /// The entry of an export that asks for no effects.
    PureEntry,
    ResumeEffectful,
    /// Reading a step's status, length or continuation.
    EffectStatus,
}

impl Transition {
    pub fn as_str(self) -> &'static str {
        match self {
            Transition::Start => "start",
            Transition::EffectfulEntry => "effectful_entry",
            Transition::PureEntry => "run_pure_entry",
            Transition::ResumeEffectful => "resume_effectful",
            Transition::EffectStatus => "effect_status",
        }
    }

    fn direction(self) -> &'static str {
        match self {
            Transition::EffectStatus => "vm",
            _ => "host->vm",
        }
    }
}

impl fmt::Display for TrapReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.panic {
            Some(text) => write!(f, "panic: {text}"),
            None => f.write_str(&self.message),
        }
    }
}

impl TrapReport {
    /// Returns the report in the shape of the reference host's diagnostics.
    pub fn to_json(&self) -> Json {
        let mut json = json!({
            "version": 1,
            "kind": "wasm-trap",
            "trap": {"message": self.message},
            "transition": {"point": self.transition.as_str(), "direction": self.transition.direction()},
        });
        if let Some(index) = self.function_index {
            json["trap"]["wasmFunctionIndex"] = index.into();
        }
        if let Some(offset) = self.module_offset {
            json["trap"]["wasmByteOffset"] = offset.into();
        }
        if let Some(panic) = &self.panic {
            json["panic"] = panic.as_str().into();
        }
        if let Some(effect) = &self.effect {
            json["effect"] = json!({
                "effectId": &*effect.effect_id,
                "opId": effect.op_id,
                "label": &*effect.label,
                "resumeKind": effect.kind.to_string(),
            });
        }
        json
    }
}

/// Why a run failed, in the words of its module's generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFailure {
    pub generation: Generation,
    pub cause: Arc<RunError<GuestFault>>,
}

impl RunFailure {
    /// Returns where the module trapped, if it did.
    pub fn trap(&self) -> Option<&TrapReport> {
        match &*self.cause {
            RunError::Guest(GuestFault::Trap(report)) => Some(report),
            _ => None,
        }
    }
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.generation == Generation::A {
            return self.cause.fmt(f);
        }
        match &*self.cause {
            RunError::Unhandled { label, .. } => write!(f, "Unhandled effect {label}"),
            RunError::ResumeGotTail { label } => write!(f, "handler for {label} cannot return tail(...)"),
            RunError::TailGotOther { label } => write!(f, "handler for {label} must return tail(...)"),
            RunError::NotAContinuation { label } => {
                write!(f, "handler for {label} must return a continuation call")
            }
            other => other.fmt(f),
        }
    }
}

impl std::error::Error for RunFailure {}
