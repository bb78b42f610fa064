//! Principals and access lists: values only. The edges (HTTP, WebSocket) authenticate principals.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::topics::name::Namespace;

/// Most entries of one access list.
pub const ACL_ENTRIES_MAX: usize = 256;
const ACTOR_BYTES_MAX: usize = 255;
/// Before a name in a list: the agents and roles of that name are denied.
const DENY: char = '!';
/// Instead of a name in a list: everybody.
const ANYONE: &str = "*";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    #[error(
        "{0:?} is no name of an agent or role: give 1 to {ACTOR_BYTES_MAX} printable ASCII characters without spaces, \
         not beginning with ! and not *"
    )]
    BadActor(String),
    #[error("the list has {0} entries: at most {ACL_ENTRIES_MAX} are allowed")]
    TooMany(usize),
}

/// The name of an agent or of a role. Agents and roles share one space of names, because lists do not tell them apart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Actor(Arc<str>);

impl Actor {
    pub fn new(text: &str) -> Result<Actor, AccessError> {
        let fine = (1..=ACTOR_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic())
            && !text.starts_with(DENY)
            && text != ANYONE;
        // The text is cut, because it may be of any length and is shown in an answer.
        if fine {
            Ok(Actor(text.into()))
        } else {
            Err(AccessError::BadActor(text.chars().take(40).collect()))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Actor {
    type Error = AccessError;
    fn try_from(text: String) -> Result<Actor, AccessError> {
        Actor::new(&text)
    }
}

impl From<Actor> for String {
    fn from(actor: Actor) -> String {
        actor.0.to_string()
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An authenticated requester: an agent, the roles it has, and the namespaces it may act in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub agent: Actor,
    pub roles: Vec<Actor>,
    pub namespaces: Namespaces,
}

/// Namespaces in which a principal may act; `None` = in all of them.
pub type Namespaces = Option<Arc<[Namespace]>>;

impl Principal {
    /// Returns the namespace for messages that name none: `default` if the principal may act in it, else the first of
    /// its namespaces.
    pub fn home(&self) -> Namespace {
        home(&self.namespaces)
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.agent.as_str() == name || self.roles.iter().any(|role| role.as_str() == name)
    }
}

/// Returns the namespace for messages that name none: see [`Principal::home`].
pub fn home(namespaces: &Namespaces) -> Namespace {
    let default = Namespace::default();
    match namespaces {
        Some(names) if !names.contains(&default) => names.first().cloned().unwrap_or(default),
        _ => default,
    }
}

/// The action that an access list permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Publish,
    Subscribe,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Publish => "publish to",
            Action::Subscribe => "read",
        })
    }
}

/// The agents and roles that may publish to a topic, or read it. An empty list permits nobody; a topic without a list
/// permits everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct AccessList(Vec<AccessEntry>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum AccessEntry {
    Anyone,
    Allow(Actor),
    Deny(Actor),
}

impl AccessList {
    pub fn new<'a>(entries: impl ExactSizeIterator<Item = &'a str>) -> Result<AccessList, AccessError> {
        if entries.len() > ACL_ENTRIES_MAX {
            return Err(AccessError::TooMany(entries.len()));
        }
        let entry = |text: &str| match text.strip_prefix(DENY) {
            Some(name) => Actor::new(name).map(AccessEntry::Deny),
            None if text == ANYONE => Ok(AccessEntry::Anyone),
            None => Actor::new(text).map(AccessEntry::Allow),
        };
        entries.map(entry).collect::<Result<_, _>>().map(AccessList)
    }

    /// Returns how many entries the list has.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the list permits the principal. A denial beats everything. A list that only denies lets everybody else
    /// in; an empty list lets nobody in.
    pub fn permits(&self, who: &Principal) -> bool {
        let denied = |entry: &AccessEntry| matches!(entry, AccessEntry::Deny(name) if who.is(name.as_str()));
        let allowed = |entry: &AccessEntry| match entry {
            AccessEntry::Anyone => true,
            AccessEntry::Allow(name) => who.is(name.as_str()),
            AccessEntry::Deny(_) => false,
        };
        let only_denies =
            !self.0.is_empty() && self.0.iter().all(|entry| matches!(entry, AccessEntry::Deny(_)));
        !self.0.iter().any(denied) && (only_denies || self.0.iter().any(allowed))
    }
}

impl TryFrom<Vec<String>> for AccessList {
    type Error = AccessError;
    fn try_from(entries: Vec<String>) -> Result<AccessList, AccessError> {
        AccessList::new(entries.iter().map(String::as_str))
    }
}

impl From<AccessList> for Vec<String> {
    fn from(list: AccessList) -> Vec<String> {
        let text = |entry| match entry {
            AccessEntry::Anyone => ANYONE.to_owned(),
            AccessEntry::Allow(name) => name.into(),
            AccessEntry::Deny(name) => format!("{DENY}{name}"),
        };
        list.0.into_iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(list: &[&str], agent: &str, roles: &[&str]) -> bool {
        let actor = |name: &str| Actor::new(name).unwrap();
        let roles = roles.iter().map(|role| actor(role)).collect();
        let who = Principal { agent: actor(agent), roles, namespaces: None };
        AccessList::new(list.iter().copied()).unwrap().permits(&who)
    }

    #[test]
    fn a_list_lets_in_whom_it_names_unless_it_denies_them() {
        assert!(!permits(&[], "alice", &["admin"]), "an empty list is nobody");
        assert!(permits(&["alice"], "alice", &[]) && !permits(&["alice"], "bob", &[]));
        assert!(permits(&["workers"], "bob", &["workers"]), "by role");
        assert!(!permits(&["workers", "!bob"], "bob", &["workers"]), "a denial beats a role");
        assert!(!permits(&["!bob", "bob"], "bob", &[]), "whatever the order");
        assert!(permits(&["!bob"], "alice", &[]) && !permits(&["!bob"], "bob", &[]), "denials alone");
        assert!(permits(&["*", "!bob"], "alice", &[]) && !permits(&["*", "!bob"], "bob", &[]));
        assert!(!permits(&["Alice"], "alice", &[]), "names are compared as they are");
    }

    #[test]
    fn home_is_default_where_that_is_allowed() {
        let names = |names: &[&str]| Some(names.iter().map(|name| Namespace::new(name).unwrap()).collect());
        for (namespaces, expected) in
            [(None, "default"), (names(&["eu", "default"]), "default"), (names(&["eu", "us"]), "eu")]
        {
            assert_eq!(home(&namespaces).as_str(), expected);
        }
    }

    #[test]
    fn names_are_bounded_and_unambiguous() {
        let long = "a".repeat(256);
        for text in ["", "!", "!x", "*", "a b", "é", "a\n", &long] {
            assert!(Actor::new(text).is_err(), "{text:?}");
        }
        assert!(Actor::new("svc:billing@eu-1").is_ok());
        assert!(AccessList::new(vec!["a"; ACL_ENTRIES_MAX + 1].into_iter()).is_err());
        assert!(AccessList::new(["!!a"].into_iter()).is_err());
    }

    #[test]
    fn a_list_is_written_as_it_was_read() {
        let text = r#"["alice","!eve","*"]"#;
        let list: AccessList = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&list).unwrap(), text);
        assert!(serde_json::from_str::<AccessList>(r#"[""]"#).is_err());
    }
}
