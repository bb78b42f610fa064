//! What a capability says of itself before it runs: what it takes, what it says, what it listens to.

use std::sync::Arc;

use millrace_model::{Group, OsKind, OsType, TopicName};

use crate::schema::Schema;

/// Longest name of a capability.
pub const CAPABILITY_NAME_BYTES_MAX: usize = 100;

/// The contract of RFC 0032, section 10.1, without `spawn`: starting it is the shell's business.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Unique among those that run: letters, digits, `.`, `_`, `-`, at most 100.
    pub name: Arc<str>,
    pub description: String,
    /// Finite by construction: every branch has a literal kind and type.
    pub inbound: Vec<Branch>,
    /// What it may say. `None`: it does not tell, so only the envelope is checked. Errors need no branch.
    pub outbound: Option<Vec<Branch>>,
    /// Types of events it wants.
    pub subscribes: Vec<OsType>,
    /// Topics of the bus whose events it wants, as `Bus.Message`.
    pub bus: Vec<BusTopic>,
}

#[derive(Clone, Debug)]
pub struct Branch {
    pub kind: OsKind,
    pub ty: OsType,
    pub description: String,
    /// Of `data`.
    pub data: Schema,
    /// Of the reply's `data`, for `Syscall.Describe`.
    pub output: Schema,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusTopic {
    pub topic: TopicName,
    /// Default: `os.NAME` of the capability.
    pub group: Group,
    /// A new group begins at the first retained event instead of at the tail.
    pub from_earliest: bool,
}

impl Manifest {
    /// 1 to [`CAPABILITY_NAME_BYTES_MAX`] letters, digits, `.`, `_`, `-`.
    pub fn name_is_legal(name: &str) -> bool {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        (1..=CAPABILITY_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed)
    }
}
