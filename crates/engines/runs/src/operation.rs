//! The operations a guest may ask for, as its effect table lists them.

use std::fmt;
use std::sync::Arc;

/// An operation of an effect. A guest names it by its position in the table that its run was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The name shown in errors and traces, such as `case::Ask.number`.
    pub label: Arc<str>,
    pub kind: ResumeKind,
}

/// Which continuation calls a handler may return for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResumeKind {
    /// `resume(...)` or `end(...)`.
    Resume,
    /// `tail(...)` only.
    Tail,
}

impl fmt::Display for ResumeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ResumeKind::Resume => "resume",
            ResumeKind::Tail => "tail",
        })
    }
}
