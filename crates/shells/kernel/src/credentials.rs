//! Who a client of the loop is, and what only some may ask.

use std::borrow::Cow;
use std::sync::Arc;

use millrace_model::{Namespace, Namespaces, OsKind, OsMessage, Principal};
use millrace_router::{NotVouched, scheduled};
use serde_json::Value;

use crate::builtin::{namespace_of, place_of};

pub(crate) const AUTHENTICATE: &str = "Syscall.Authenticate";
pub(crate) const SHUTDOWN: &str = "Syscall.Shutdown";
pub(crate) const RELOAD: &str = "Syscall.Reload";

pub(crate) const REQUIRED: &str =
    "Authentication required: First message must be Syscall.Authenticate with a valid token";
const ADMIN_ONLY: &str = "Forbidden: this needs a token with the scope admin";
const PUBLISH_ONLY: &str = "Forbidden: Bus.Publish needs a token with the scope publish";
pub(crate) const REVOKED: &str = "Authentication required: the token is no longer valid, come in again";
const PUBLISH: &str = "Bus.Publish";
const TIMER_SET: &str = "Timer.Set";
/// Every type of this capability names a namespace.
const MEMORY: &str = "Memory.";

/// What a token stands for.
#[derive(Clone)]
pub struct Credentials {
    pub by: Arc<Principal>,
    pub rights: Rights,
    /// Whether the token is still good.
    pub valid: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("by", &self.by)
            .field("rights", &self.rights)
            .finish_non_exhaustive()
    }
}

/// What somebody may ask of the loop's own capabilities besides talking to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Stop the server, make it read its configuration again.
    pub admin: bool,
    /// `Bus.Publish`.
    pub publish: bool,
    /// Where to, and whose Memory; `None` = everywhere.
    pub namespaces: Namespaces,
}

impl Rights {
    pub const ALL: Rights = Rights { admin: true, publish: true, namespaces: None };

    /// What a message asks for and this does not hold, as the sentence of a 403. What a timer is to send counts, and
    /// what a timer is to send that a timer is to set.
    pub fn refuse(&self, message: &OsMessage) -> Option<Cow<'static, str>> {
        if *self == Rights::ALL {
            return None;
        }
        let mut ty = message.ty.clone();
        let mut data = message.data.clone();
        loop {
            match ty.as_str() {
                SHUTDOWN | RELOAD if !self.admin => return Some(ADMIN_ONLY.into()),
                PUBLISH if !self.publish => return Some(PUBLISH_ONLY.into()),
                // What cannot be read goes nowhere: the capability reads it the same way.
                PUBLISH => return self.refuse_namespace(&place_of(&data).ok()?.namespace),
                // Without one it is the token's own.
                memory if memory.starts_with(MEMORY) => {
                    return namespace_of(&data).ok()?.and_then(|named| self.refuse_namespace(&Some(named)));
                }
                // Read as the engine will read it: what it refuses sets no timer.
                TIMER_SET => (ty, data) = scheduled(&data)?,
                _ => return None,
            }
        }
    }

    fn refuse_namespace(&self, named: &Option<String>) -> Option<Cow<'static, str>> {
        let allowed = self.namespaces.as_ref()?;
        let default = Namespace::default();
        let named = named.as_deref().unwrap_or(default.as_str());
        let is_allowed = |name: &Namespace| name.as_str() == named;
        if allowed.iter().any(is_allowed) {
            return None;
        }
        Some(format!("Forbidden: the token is not for namespace {named:.255}").into())
    }
}

/// Why a token does not count for the loop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the token is not accepted")]
    Unknown,
    #[error("the token has expired")]
    Expired,
    #[error("Forbidden: the token of agent {agent} has no scope {scope}")]
    NoScope { agent: String, scope: &'static str },
    /// A connection keeps its agent, as on the bus.
    #[error("Forbidden: this connection is of agent {now}: open a new one for agent {shown}")]
    AnotherAgent { now: String, shown: String },
}

impl TokenError {
    pub fn code(&self) -> u16 {
        match self {
            TokenError::Unknown | TokenError::Expired => 401,
            TokenError::NoScope { .. } | TokenError::AnotherAgent { .. } => 403,
        }
    }

    /// Whether a connection of `now` may become one of `shown`: who had no name may get one, who has one keeps it.
    pub fn check_change(now: Option<&Principal>, shown: &Principal) -> Result<(), TokenError> {
        match now {
            Some(now) if now.agent != shown.agent => {
                Err(TokenError::AnotherAgent { now: now.agent.to_string(), shown: shown.agent.to_string() })
            }
            _ => Ok(()),
        }
    }
}

/// As whom a message is sent that an agent has put off with a timer, or why it may not be sent any more.
pub type Vouch = Arc<dyn Fn(&Principal, &OsMessage) -> Result<Arc<Principal>, NotVouched> + Send + Sync>;

/// Looks a token up.
pub type CheckToken = Arc<dyn Fn(&str) -> Result<Credentials, TokenError> + Send + Sync>;

/// The token in a `Syscall.Authenticate`.
pub fn shown_token(message: &OsMessage) -> Option<String> {
    let shows = message.kind == OsKind::Command && message.ty.as_str() == AUTHENTICATE;
    shows.then(|| token_of(message)).flatten()
}

pub(crate) fn token_of(message: &OsMessage) -> Option<String> {
    let data: Value = serde_json::from_str(message.data.as_str()).ok()?;
    data.get("token")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> bool {
        let text = format!(r#"{{"kind":"command",{text},"metadata":{{"id":"a","timestamp":1}}}}"#);
        let message = millrace_wire::os::parse(text.as_bytes(), None).unwrap();
        assert!(Rights::ALL.refuse(&message).is_none());
        Rights { admin: false, publish: false, namespaces: None }.refuse(&message).is_some()
    }

    #[test]
    fn what_may_not_be_asked_may_not_be_asked_by_a_timer_either() {
        assert!(refused(r#""type":"Syscall.Shutdown","data":{}"#));
        assert!(refused(r#""type":"Bus.Publish","data":{}"#));
        assert!(!refused(r#""type":"Memory.Set","data":{"message":{"type":"Syscall.Shutdown"}}"#));
        let timer = |inner: &str| {
            format!(r#""type":"Timer.Set","data":{{"delayMs":1,"message":{{"kind":"command",{inner}}}}}"#)
        };
        let stop = r#""type":"Syscall.Shutdown","data":{}"#;
        assert!(refused(&timer(stop)));
        assert!(refused(&timer(&timer(stop))));
        assert!(!refused(&timer(r#""type":"Syscall.Ping","data":{}"#)));
        assert!(!refused(r#""type":"Timer.Set","data":7"#));
        let odd = r#""type":"Timer.Set","data":{"delayMs":1,"odd":[1e400,"\ud800"],"message":{"kind":"command",INNER}}"#;
        assert!(refused(&odd.replace("INNER", stop)), "numbers no program can hold hide nothing");
    }

    #[test]
    fn memory_is_that_of_the_tokens_own_namespaces() {
        let blue = Namespace::new("blue").unwrap();
        let rights = Rights { admin: true, publish: true, namespaces: Some([blue].into()) };
        let refused = |ty: &str, data: &str| {
            let text = format!(
                r#"{{"kind":"command","type":"{ty}","data":{data},"metadata":{{"id":"a","timestamp":1}}}}"#
            );
            let message = millrace_wire::os::parse(text.as_bytes(), None).unwrap();
            rights.refuse(&message).map(Cow::into_owned)
        };
        for ty in ["Memory.Get", "Memory.Set", "Memory.Delete", "Memory.List"] {
            for fine in [r#"{"key":"/a"}"#, r#"{"key":"/a","namespace":"blue"}"#, r#"{"namespace":null}"#] {
                assert_eq!(refused(ty, fine), None, "{ty} {fine}");
            }
            let elsewhere = "Forbidden: the token is not for namespace default".to_owned();
            assert_eq!(refused(ty, r#"{"key":"/a","namespace":"def\u0061ult"}"#), Some(elsewhere.clone()));
            let timer = format!(
                r#"{{"delayMs":1,"message":{{"kind":"command","type":"{ty}","data":{{"namespace":"default"}}}}}}"#
            );
            assert_eq!(refused("Timer.Set", &timer), Some(elsewhere));
        }
    }

    #[test]
    fn a_publish_goes_where_the_token_is_good() {
        let blue = Namespace::new("blue").unwrap();
        let rights = Rights { admin: false, publish: true, namespaces: Some([blue].into()) };
        let publish = |data: &str| {
            let text = format!(
                r#"{{"kind":"command","type":"Bus.Publish","data":{data},"metadata":{{"id":"a","timestamp":1}}}}"#
            );
            let message = millrace_wire::os::parse(text.as_bytes(), None).unwrap();
            rights.refuse(&message).map(Cow::into_owned)
        };
        assert_eq!(publish(r#"{"topic":"t","payload":1,"namespace":"blue"}"#), None);
        let elsewhere = "Forbidden: the token is not for namespace ";
        for (data, at) in [
            (r#"{"topic":"t","payload":1}"#, "default"),
            (r#"{"topic":"t","payload":1,"namespace":null}"#, "default"),
            (r#"{"topic":"t","payload":1,"namespace":"red"}"#, "red"),
            (r#"{"topic":"t","payload":1e400,"namespace":"r\u0065d"}"#, "red"),
        ] {
            assert_eq!(publish(data), Some(format!("{elsewhere}{at}")));
        }
    }
}
