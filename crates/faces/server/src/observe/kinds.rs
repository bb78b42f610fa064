//! The kinds of audit records: a closed list, from which the configuration chooses.

use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditKind {
    /// `unauthorized`, `forbidden`, `rate_limited`.
    Refusals,
    /// Topics and groups that were made, changed, moved or deleted; dead letters that were replayed.
    Admin,
    Publish,
    /// Joining and leaving groups.
    Subscribe,
    /// Contents of events that were looked at over HTTP.
    Read,
    /// ACK and NACK.
    Ack,
    /// The fate of deliveries that failed.
    Redelivery,
}

impl AuditKind {
    pub const ALL: &[AuditKind] = &[
        AuditKind::Refusals,
        AuditKind::Admin,
        AuditKind::Publish,
        AuditKind::Subscribe,
        AuditKind::Read,
        AuditKind::Ack,
        AuditKind::Redelivery,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            AuditKind::Refusals => "refusals",
            AuditKind::Admin => "admin",
            AuditKind::Publish => "publish",
            AuditKind::Subscribe => "subscribe",
            AuditKind::Read => "read",
            AuditKind::Ack => "ack",
            AuditKind::Redelivery => "redelivery",
        }
    }
}

impl fmt::Display for AuditKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for AuditKind {
    type Err = ();

    fn from_str(text: &str) -> Result<AuditKind, ()> {
        AuditKind::ALL.iter().copied().find(|kind| kind.as_str() == text).ok_or(())
    }
}

/// The kinds that are audited; empty means that the audit is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditKinds(u8);

impl AuditKinds {
    pub fn has(self, kind: AuditKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    pub fn is_off(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = AuditKind> {
        AuditKind::ALL.iter().copied().filter(move |kind| self.has(*kind))
    }
}

impl FromIterator<AuditKind> for AuditKinds {
    fn from_iter<T: IntoIterator<Item = AuditKind>>(kinds: T) -> AuditKinds {
        AuditKinds(kinds.into_iter().fold(0, |bits, kind| bits | 1 << kind as u8))
    }
}
