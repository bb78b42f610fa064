//! Manifests: what a capability declares before it runs. Which messages it takes, which it emits, which events it
//! subscribes to.

use std::sync::Arc;

use millrace_model::{Group, OsKind, OsType, TopicName};

use crate::capabilities::schema::Schema;

/// Longest name of a capability.
pub const CAPABILITY_NAME_BYTES_MAX: usize = 100;

/// The contract of RFC 0032, section 10.1, without `spawn`: the shell starts capabilities.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Unique among installed capabilities: letters, digits, `.`, `_`, `-`, at most 100.
    pub name: Arc<str>,
    pub description: String,
    /// The messages it takes. Finite by construction: every branch has a literal kind and type.
    pub inbound: Vec<Branch>,
    /// The messages it may emit. `None`: not declared, so only the envelope is checked. Errors need no branch.
    pub outbound: Option<Vec<Branch>>,
    /// Types of events it subscribes to.
    pub subscribes: Vec<OsType>,
    /// Topics of the bus whose events it gets, as `Bus.Message`.
    pub bus: Vec<BusTopic>,
}

#[derive(Clone, Debug)]
pub struct Branch {
    pub kind: OsKind,
    pub ty: OsType,
    pub description: String,
    /// The schema of `data`.
    pub data: Schema,
    /// The schema of the reply's `data`, for `Syscall.Describe`.
    pub output: Schema,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusTopic {
    pub topic: TopicName,
    /// Defaults to `os.NAME`, with the capability's name.
    pub group: Group,
    /// A new group begins at the first retained event instead of at the tail.
    pub from_earliest: bool,
}

impl Manifest {
    /// Whether `name` is 1 to [`CAPABILITY_NAME_BYTES_MAX`] letters, digits, `.`, `_`, `-`.
    pub fn name_is_legal(name: &str) -> bool {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        (1..=CAPABILITY_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed)
    }
}
