//! The fault of a message that a capability emitted.

use millrace_model::{OsId, OsKind, OsType};

use crate::capabilities::schema::SchemaMismatch;

/// The fault of a message that a capability emitted. The text follows the name of the capability.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EmissionError {
    #[error("emitted a reply {ty} without metadata.causation")]
    ReplyWithoutCause { ty: OsType },
    #[error("emitted {kind} {ty} without metadata.causation")]
    WithoutCause { kind: OsKind, ty: OsType },
    #[error("emitted {kind} {ty} with metadata.causation {cause}, which it was not given and did not say")]
    FalseCause { kind: OsKind, ty: OsType, cause: OsId },
    #[error("emitted an error {ty} whose data is not {{code: 400 to 599, message: text}}")]
    NoFault { ty: OsType },
    #[error("emitted {kind} {ty}, which its manifest does not declare")]
    Undeclared { kind: OsKind, ty: OsType },
    #[error("emitted {kind} {ty} that does not fit its schema: {mismatch}")]
    Mismatch { kind: OsKind, ty: OsType, mismatch: SchemaMismatch },
}
