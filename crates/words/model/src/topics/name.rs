//! Names of namespaces, topics, groups, handlers and sessions: one alphabet, so that none of them ever needs escaping.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The suffix of a dead-letter topic's name.
pub const DLQ_SUFFIX: &str = ".DLQ";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    Namespace,
    Topic,
    Group,
    Handler,
    Session,
}

impl NameKind {
    /// Four bytes of a topic's name are kept free so that its dead-letter topic still has a legal name.
    fn bytes_max(self, text: &str) -> usize {
        match self {
            NameKind::Topic if !text.ends_with(DLQ_SUFFIX) => 251,
            _ => 255,
        }
    }
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameKind::Namespace => "namespace",
            NameKind::Topic => "topic",
            NameKind::Group => "group",
            NameKind::Handler => "handler id",
            NameKind::Session => "session id",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("{0} is empty: give it 1 to {max} characters of A-Z a-z 0-9 . _ : -", max = .0.bytes_max(""))]
    Empty(NameKind),
    #[error("{kind} has {len} bytes: at most {max} are allowed")]
    TooLong { kind: NameKind, len: usize, max: usize },
    #[error("{kind} contains {found:?}: only A-Z a-z 0-9 . _ : - are allowed")]
    BadCharacter { kind: NameKind, found: char },
    #[error("{0} has an empty dot segment: no leading, trailing or doubled dots")]
    EmptySegment(NameKind),
}

fn check(kind: NameKind, text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty(kind));
    }
    let max = kind.bytes_max(text);
    if text.len() > max {
        return Err(NameError::TooLong { kind, len: text.len(), max });
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
    if let Some(found) = text.chars().find(|c| !allowed(*c)) {
        return Err(NameError::BadCharacter { kind, found });
    }
    if text.split('.').any(str::is_empty) {
        return Err(NameError::EmptySegment(kind));
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $kind:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(Arc<str>);

        impl $type {
            pub fn new(text: &str) -> Result<Self, NameError> {
                check($kind, text)?;
                Ok($type(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                $type::new(&text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0.to_string()
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A tenant of the store: topics of different namespaces are separate.
    Namespace,
    NameKind::Namespace
);
name!(
    /// The name of a topic inside its namespace; for typed events it is the event type.
    TopicName,
    NameKind::Topic
);
name!(
    /// A consumer group: each event goes to one member of every group.
    Group,
    NameKind::Group
);
name!(
    /// The id of a durable handler: `module::path:function` unless its author named it. The rows of its finished events
    /// are stored under this id.
    HandlerId,
    NameKind::Handler
);
name!(
    /// The id of a session: one run of a program that claims events. Millrace never reuses an id; if a user does,
    /// [`ClaimRow::generation`](crate::ClaimRow::generation) distinguishes the claims.
    SessionId,
    NameKind::Session
);

impl Default for Namespace {
    fn default() -> Self {
        Namespace("default".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_names_pass() {
        for text in ["a", "heartbeat.received", "changelog:processes", "A-Z_0.9", "orders.DLQ"] {
            assert!(TopicName::new(text).is_ok(), "{text}");
        }
        assert!(TopicName::new(&"t".repeat(251)).is_ok());
        assert!(TopicName::new(&format!("{}{DLQ_SUFFIX}", "t".repeat(251))).is_ok());
        assert!(Group::new(&"g".repeat(255)).is_ok());
    }

    #[test]
    fn illegal_names_say_what_is_wrong() {
        for (text, reason) in [
            ("", "topic is empty: give it 1 to 251 characters of A-Z a-z 0-9 . _ : -"),
            ("a..b", "topic has an empty dot segment: no leading, trailing or doubled dots"),
            ("..", "topic has an empty dot segment: no leading, trailing or doubled dots"),
            (".a", "topic has an empty dot segment: no leading, trailing or doubled dots"),
            ("a.", "topic has an empty dot segment: no leading, trailing or doubled dots"),
            ("a/b", "topic contains '/': only A-Z a-z 0-9 . _ : - are allowed"),
            ("a\u{0}", "topic contains '\\0': only A-Z a-z 0-9 . _ : - are allowed"),
            ("é", "topic contains 'é': only A-Z a-z 0-9 . _ : - are allowed"),
        ] {
            assert_eq!(TopicName::new(text).unwrap_err().to_string(), reason, "{text:?}");
        }
        assert_eq!(
            TopicName::new(&"t".repeat(252)).unwrap_err().to_string(),
            "topic has 252 bytes: at most 251 are allowed"
        );
    }
}
