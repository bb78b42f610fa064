//! The identity and rights of a client of the loop: which messages need special rights.

use std::borrow::Cow;
use std::sync::Arc;

use millrace_model::{Namespace, Namespaces, OsKind, OsMessage, Principal};
use millrace_router::{NotTrusted, scheduled};
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
/// The prefix of the types of Memory, all of which may name a namespace.
const MEMORY: &str = "Memory.";

/// The identity and rights a token gives.
#[derive(Clone)]
pub struct Credentials {
    pub by: Arc<Principal>,
    pub rights: Rights,
    /// Whether the token is still valid.
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

/// The rights to use the loop's own capabilities; sending other messages needs none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// May stop the server and reload its configuration.
    pub admin: bool,
    /// May send `Bus.Publish`.
    pub publish: bool,
    /// The namespaces that may be published to and whose Memory may be used; `None` = all.
    pub namespaces: Namespaces,
}

impl Rights {
    pub const ALL: Rights = Rights { admin: true, publish: true, namespaces: None };

    /// Returns the text of a 403 if these rights do not cover the message. Also checks the message inside `Timer.Set`,
    /// recursively.
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
                // Data that cannot be read is let through: the capability reads it the same way and refuses it.
                PUBLISH => return self.refuse_namespace(&place_of(&data).ok()?.namespace),
                // A message of Memory that names no namespace means the token's own.
                memory if memory.starts_with(MEMORY) => {
                    return namespace_of(&data).ok()?.and_then(|named| self.refuse_namespace(&Some(named)));
                }
                // Read as the engine reads it: data that the engine refuses sets no timer.
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

/// Why the loop does not accept a token.
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

    /// Whether a connection of `now` may become one of `shown`: a connection without an identity may get one, a
    /// connection with one keeps its agent.
    pub fn check_change(now: Option<&Principal>, shown: &Principal) -> Result<(), TokenError> {
        match now {
            Some(now) if now.agent != shown.agent => {
                Err(TokenError::AnotherAgent { now: now.agent.to_string(), shown: shown.agent.to_string() })
            }
            _ => Ok(()),
        }
    }
}

/// Checks whether an agent may still send a message that it scheduled with a timer. Returns the identity to send it as,
/// or why it may not be sent.
pub type CheckSender =
    Arc<dyn Fn(&Principal, &OsMessage) -> Result<Arc<Principal>, NotTrusted> + Send + Sync>;

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
