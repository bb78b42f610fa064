//! The two wire generations behind one interface: [`Codec`] turns arguments, replies, requests and results into bytes
//! and back. Nothing above this folder knows which generation a module speaks, except for the shapes of its functions.

pub(crate) mod abi;
#[cfg(test)]
mod fuzz_tests;
mod generation_a;
mod generation_b;
pub(crate) mod msgpack;
#[cfg(test)]
mod recorded_tests;
pub(crate) mod schema;

use std::fmt;

use millrace_runs::ResumeKind;

pub(crate) use self::generation_a::GenerationA;
pub(crate) use self::generation_b::GenerationB;
use self::msgpack::MsgPackError;
use self::schema::TypeMismatch;
use crate::table::EffectOp;
use crate::value::Value;

/// Which wire protocol a module speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Generation {
    /// Bare MsgPack values and request maps; no types.
    A,
    /// Versioned MsgPack frames with typed payloads (`hostAbi` 2).
    B,
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Generation::A => "A",
            Generation::B => "B",
        })
    }
}

/// A payload or status that breaks the protocol. The run fails; the instance stays usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error("unexpected effect status {0}")]
    Status(i32),
    #[error("no msgpack payload written to buffer")]
    NoPayload,
    #[error("the module wrote {len} bytes into its buffer of {buffer_bytes}, by its own account")]
    LengthLie { len: i32, buffer_bytes: usize },
    #[error("the payload does not fit the run's buffer of {buffer_bytes} bytes: increase buffer_bytes")]
    Overflow { buffer_bytes: usize },
    #[error("{0}")]
    MsgPack(#[from] MsgPackError),
    #[error("{what}: {problem}")]
    Shape { what: &'static str, problem: &'static str },
    #[error("unsupported resume kind {0}")]
    ResumeKind(i64),
    #[error("Unknown effect op index {0}")]
    UnknownOp(i64),
    #[error("Effect id mismatch for opIndex {op_index} (expected {expected})")]
    EffectId { op_index: i64, expected: String },
    #[error("Effect op index mismatch for handle {handle} (expected {expected}, got {got})")]
    OpIndex { handle: i64, expected: u32, got: i64 },
    #[error("Effect op id mismatch for {label} (expected {expected}, got {got})")]
    OpId { label: String, expected: u32, got: i64 },
    #[error("Effect signature mismatch for {label} (expected 0x{expected:08x}, got 0x{got:08x})")]
    Signature { label: String, expected: u32, got: u32 },
    #[error("Resume kind mismatch for {label} (expected {expected}, got {got})")]
    KindMismatch { label: String, expected: ResumeKind, got: ResumeKind },
    #[error("resume payload exceeds buffer size")]
    ReplyTooLarge,
    #[error("the arguments take {len} bytes, but the run's buffer has {buffer_bytes}: increase buffer_bytes")]
    ArgumentsTooLarge { len: usize, buffer_bytes: usize },
    #[error("{0}")]
    Type(#[from] TypeMismatch),
    #[error("the module reports a failure: {0}")]
    ModuleFailure(String),
    #[error("effect_cont returned null for a request")]
    NoContinuation,
}

/// A request for an effect, checked against the effect table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EffectRequest {
    /// Position in the effect table.
    pub(crate) op: u32,
    pub(crate) args: Vec<Value>,
    /// Copied into the reply's frame. Empty in generation A, whose replies are bare.
    pub(crate) reply_fingerprint: String,
}

/// The bytes of one wire generation.
pub(crate) trait Codec: fmt::Debug + Send + Sync {
    /// Appends the input of the entry of `export`: its encoded arguments.
    fn entry(&self, export: &str, args: Vec<Value>, out: &mut Vec<u8>) -> Result<(), ProtocolError>;

    /// Reads a request and checks it against the table.
    fn request(&self, bytes: &[u8], table: &[EffectOp]) -> Result<EffectRequest, ProtocolError>;

    /// Appends the reply to a request of `op`.
    fn reply(
        &self,
        op: &EffectOp,
        fingerprint: &str,
        value: Value,
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError>;

    /// Reads the result of `export`.
    fn result(&self, export: &str, bytes: &[u8]) -> Result<Value, ProtocolError>;

    /// Checks the value by which a handler ends a run of `export` early.
    fn end_value(&self, export: &str, value: Value) -> Result<Value, TypeMismatch>;
}

/// Checks that the kind is the table's. Both generations make this check.
fn check_kind(op: &EffectOp, kind: ResumeKind) -> Result<(), ProtocolError> {
    if op.kind == kind {
        return Ok(());
    }
    Err(ProtocolError::KindMismatch { label: op.label.to_string(), expected: op.kind, got: kind })
}

fn check_op_id(op: &EffectOp, op_id: i64) -> Result<(), ProtocolError> {
    if i64::from(op.op_id) == op_id {
        return Ok(());
    }
    Err(ProtocolError::OpId { label: op.label.to_string(), expected: op.op_id, got: op_id })
}

fn op_at(table: &[EffectOp], index: i64) -> Result<&EffectOp, ProtocolError> {
    let op = usize::try_from(index).ok().and_then(|index| table.get(index));
    op.ok_or(ProtocolError::UnknownOp(index))
}
