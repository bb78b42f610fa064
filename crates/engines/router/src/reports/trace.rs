//! The messages that the loop has seen, in a ring buffer: enough to draw the tree of causes of a recent undertaking.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use millrace_model::{JsonText, Namespaces, OsId, OsKind, OsMessage, OsType, Requester, Timestamp};

use crate::interface::input::ConnId;
use crate::timing::builtin::TIMER_SET;

/// Where a message came from, or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Party {
    Client(ConnId),
    Capability(Arc<str>),
    /// The loop itself.
    Loop,
    Timer,
    Bus,
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::Client(conn) => write!(f, "client {}", conn.0),
            Party::Capability(name) => f.write_str(name),
            Party::Loop => f.write_str("loop"),
            Party::Timer => f.write_str("timer"),
            Party::Bus => f.write_str("bus"),
        }
    }
}

/// The result of routing a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceStep {
    /// Put into these mailboxes, or answered by the loop itself.
    Routed { to: Vec<Arc<str>> },
    /// The loop answered the request with this error.
    Refused { code: u16 },
    /// An outcome that reached its requester.
    Answered { to: Party },
    /// An outcome nobody waits for.
    Orphan,
    /// An actor emitted a message that it may not emit.
    Faulty,
}

impl TraceStep {
    pub fn as_str(&self) -> &'static str {
        match self {
            TraceStep::Routed { .. } => "routed",
            TraceStep::Refused { .. } => "refused",
            TraceStep::Answered { .. } => "answered",
            TraceStep::Orphan => "orphan",
            TraceStep::Faulty => "faulty",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// Increases by one from record to record.
    pub number: u64,
    pub at: Timestamp,
    pub from: Party,
    pub step: TraceStep,
    pub kind: OsKind,
    pub ty: OsType,
    pub id: OsId,
    pub causation: Option<OsId>,
    pub correlation: Option<OsId>,
    /// The code in an error's data.
    pub code: Option<u16>,
    /// The beginning of the message's data, as far as [`crate::RouterLimits::trace_data_bytes_max`] allows.
    pub data: String,
    /// The namespaces of the client that began this undertaking. `None`: unrestricted or unknown, so that only
    /// unrestricted callers see the record.
    pub namespaces: Namespaces,
}

impl TraceRecord {
    fn without_data(&self) -> TraceRecord {
        let TraceRecord {
            number,
            at,
            from,
            step,
            kind,
            ty,
            id,
            causation,
            correlation,
            code,
            data: _,
            namespaces,
        } = self;
        TraceRecord {
            number: *number,
            at: *at,
            from: from.clone(),
            step: step.clone(),
            kind: *kind,
            ty: ty.clone(),
            id: id.clone(),
            causation: causation.clone(),
            correlation: correlation.clone(),
            code: *code,
            data: String::new(),
            namespaces: namespaces.clone(),
        }
    }

    /// Whether a caller restricted to `namespaces` may see this record: all namespaces of the record must be among
    /// them.
    fn is_seen_from(&self, namespaces: &Namespaces) -> bool {
        let Some(own) = namespaces else { return true };
        self.namespaces.as_deref().is_some_and(|names| names.iter().all(|name| own.contains(name)))
    }
}

/// The namespaces of the client that began an undertaking: in the trace, only callers who may act in all of them see
/// it.
pub(crate) type Realm = Namespaces;

pub(crate) fn realm_of(by: &Requester) -> Realm {
    by.principal().and_then(|by| by.namespaces.clone())
}

/// On whose behalf a request is made: `by` is checked against access lists, `realm` decides who sees the request in the
/// trace. The two differ for a request of a capability: it acts as itself, in an undertaking that a client began.
#[derive(Clone, Debug)]
pub(crate) struct Behalf {
    pub(crate) by: Requester,
    pub(crate) realm: Realm,
}

impl Behalf {
    /// A request that the loop or a capability makes as itself.
    pub(crate) fn trusted(realm: Realm) -> Behalf {
        Behalf { by: Requester::Trusted, realm }
    }

    pub(crate) fn of(by: Requester) -> Behalf {
        let realm = realm_of(&by);
        Behalf { by, realm }
    }
}

/// Marks data that was cut.
const CUT: &str = "...";
/// The data of this request holds a token.
const AUTHENTICATE: &str = "Syscall.Authenticate";
/// Values under this path of Memory must be ciphertext: a value that was refused there is plaintext.
const SEALED: &str = "/vault";

/// Whether data must not be kept in the trace: it holds a secret, or it sets a timer that sends one. JSON escapes are
/// decoded before the comparison.
fn is_secret(ty: &str, data: &str) -> bool {
    let names = |secret: &str| {
        data.contains(secret)
            || (data.contains('\\') && serde_json::from_str(data).is_ok_and(|value| mentions(&value, secret)))
    };
    match ty {
        AUTHENTICATE => true,
        TIMER_SET => names(AUTHENTICATE) || names(SEALED),
        _ => ty.starts_with("Memory.") && names(SEALED),
    }
}

/// Whether some text inside the value holds `secret`. The edge has parsed the value before, so its depth is bounded.
fn mentions(value: &serde_json::Value, secret: &str) -> bool {
    match value {
        serde_json::Value::String(text) => text.contains(secret),
        serde_json::Value::Array(items) => items.iter().any(|item| mentions(item, secret)),
        serde_json::Value::Object(fields) => {
            fields.iter().any(|(name, value)| name.contains(secret) || mentions(value, secret))
        }
        _ => false,
    }
}

fn code_of(data: &JsonText) -> Option<u16> {
    #[derive(serde::Deserialize)]
    struct FaultCode {
        code: u16,
    }
    serde_json::from_str::<FaultCode>(data.as_str()).ok().map(|fault| fault.code)
}

/// Which records to find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceQuery {
    Correlation(OsId),
    /// The message with this id and everything that followed from it.
    Id(OsId),
}

#[derive(Debug)]
pub(crate) struct Trace {
    ring: VecDeque<TraceRecord>,
    max: usize,
    data_bytes_max: usize,
    next: u64,
}

impl Trace {
    pub(crate) fn new(max: usize, data_bytes_max: usize) -> Trace {
        Trace { ring: VecDeque::new(), max, data_bytes_max, next: 1 }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.max > 0
    }

    pub(crate) fn add(
        &mut self,
        at: Timestamp,
        from: Party,
        step: TraceStep,
        namespaces: Namespaces,
        message: &OsMessage,
    ) -> &TraceRecord {
        // The new record reuses the oldest one's text buffer: no allocation per message once the ring is full.
        let oldest = if self.ring.len() >= self.max.max(1) { self.ring.pop_front() } else { None };
        let mut data = oldest.map(|oldest| oldest.data).unwrap_or_default();
        self.copy_beginning(message, &mut data);
        let metadata = &message.metadata;
        self.ring.push_back(TraceRecord {
            number: self.next,
            at,
            from,
            step,
            kind: message.kind,
            ty: message.ty.clone(),
            id: metadata.id.clone(),
            causation: metadata.causation.clone(),
            correlation: metadata.correlation.clone(),
            code: (message.kind == OsKind::Error).then(|| code_of(&message.data)).flatten(),
            data,
            namespaces,
        });
        self.next += 1;
        &self.ring[self.ring.len() - 1]
    }

    /// Copies the data, so that a record does not keep the whole message in memory.
    fn copy_beginning(&self, message: &OsMessage, into: &mut String) {
        into.clear();
        let (ty, data) = (message.ty.as_str(), message.data.as_str());
        if self.data_bytes_max == 0 || is_secret(ty, data) {
            return;
        }
        let kept = &data[..data.floor_char_boundary(self.data_bytes_max)];
        let cut = if kept.len() < data.len() { CUT } else { "" };
        into.reserve_exact(kept.len() + cut.len());
        into.push_str(kept);
        into.push_str(cut);
    }

    /// Returns the oldest records first: at most `max`, with numbers above `after`, that a caller restricted to the
    /// namespaces `from` may see.
    pub(crate) fn find(
        &self,
        query: &TraceQuery,
        after: u64,
        max: usize,
        from: &Namespaces,
    ) -> Vec<TraceRecord> {
        let hits: Vec<&TraceRecord> = match query {
            TraceQuery::Correlation(id) => {
                self.ring.iter().filter(|record| record.correlation.as_ref() == Some(id)).collect()
            }
            TraceQuery::Id(id) => self.descendants(id),
        };
        let shown = |record: &&TraceRecord| record.number > after && record.is_seen_from(from);
        hits.into_iter().filter(shown).take(max).cloned().collect()
    }

    /// Returns all records that a caller restricted to the namespaces `from` may see, the oldest first and without their
    /// data.
    pub(crate) fn outline(&self, from: &Namespaces) -> Vec<TraceRecord> {
        let shown = self.ring.iter().filter(|record| record.is_seen_from(from));
        shown.map(TraceRecord::without_data).collect()
    }

    /// A single pass finds all of them: a consequence is recorded after its cause.
    fn descendants(&self, root: &OsId) -> Vec<&TraceRecord> {
        let mut family = BTreeSet::from([root]);
        let mut hits = Vec::new();
        for record in &self.ring {
            if record.causation.as_ref().is_some_and(|cause| family.contains(cause)) {
                family.insert(&record.id);
            }
            if family.contains(&record.id) {
                hits.push(record);
            }
        }
        hits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_plaintext_for_the_vault_are_secret_however_they_are_spelled() {
        for (ty, data) in [
            (AUTHENTICATE, r#"{"token":"t"}"#),
            (TIMER_SET, r#"{"message":{"type":"Syscall.Authenticate","data":{"token":"t"}}}"#),
            ("Memory.Set", r#"{"path":"/vault/a","value":"plain"}"#),
            ("Memory.Set", r#"{"path":"\/vault\/a","value":"plain"}"#),
            ("Memory.Set", r#"{"path":"\u002fvault/a","value":"plain"}"#),
            ("Memory.Changed", r#"{"path":"/vault/a"}"#),
            (TIMER_SET, r#"{"message":{"type":"Memory.Set","data":{"path":"\u002fvault/a","value":"p"}}}"#),
        ] {
            assert!(is_secret(ty, data), "{ty} {data}");
        }
        for (ty, data) in [
            ("Memory.Set", r#"{"path":"/a","value":"a \"quoted\" text"}"#),
            (TIMER_SET, r#"{"message":{"type":"Memory.Set","data":{"path":"/a","value":1}}}"#),
            ("Bus.Publish", r#"{"topic":"t","payload":"/vault"}"#),
        ] {
            assert!(!is_secret(ty, data), "{ty} {data}");
        }
    }
}
