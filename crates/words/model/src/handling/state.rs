//! State that is kept beside events: what a session declares, and how the commit applies it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::log::id::EventId;
use crate::log::json::JsonText;
use crate::topics::name::Namespace;

/// The number of a commit of state, counted over the whole store from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StateCommit(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateKind {
    Entity,
    Relation,
}

/// The identity of a piece of state: an entity or a relation, with its keys. Type names and keys may hold any text;
/// [`crate::keys`] escapes them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Identity {
    Entity {
        type_name: String,
        key: String,
    },
    Relation {
        type_name: String,
        left_key: String,
        right_key: String,
        /// Empty when the relation type declares none.
        instance_key: String,
    },
}

impl Identity {
    pub fn kind(&self) -> StateKind {
        match self {
            Identity::Entity { .. } => StateKind::Entity,
            Identity::Relation { .. } => StateKind::Relation,
        }
    }

    pub fn type_name(&self) -> &str {
        match self {
            Identity::Entity { type_name, .. } | Identity::Relation { type_name, .. } => type_name,
        }
    }
}

/// For messages: ``entity `Counter` "total"``.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Entity { type_name, key } => write!(f, "entity `{type_name}` {key:?}"),
            Identity::Relation { type_name, left_key, right_key, instance_key } => {
                write!(f, "relation `{type_name}` from {left_key:?} to {right_key:?}")?;
                if instance_key.is_empty() { Ok(()) } else { write!(f, ", {instance_key:?}") }
            }
        }
    }
}

/// Makes state as declared. A symbolic operation: the commit determines what changes, and its number. Nothing is
/// written when every identity already is as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconcile {
    pub namespace: Namespace,
    pub meta: BTreeMap<String, String>,
    /// At most one per identity: the caller lets the last intent win.
    pub intents: Vec<Intent>,
    /// Events of the same batch that belong to this commit: later the commit's number can be looked up by their id.
    pub events: Vec<EventId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    pub identity: Identity,
    /// All fields as one JSON object with sorted keys, or `None` to retract the identity.
    pub fields: Option<JsonText>,
    /// The version of the type's schema that the fields follow.
    pub schema: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    Insert,
    Update,
    Retract,
}

/// A change in the record of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateChange {
    #[serde(flatten)]
    pub identity: Identity,
    pub operation: Operation,
}

impl Reconcile {
    /// Returns an upper estimate of the rows it writes: the head, the history row and the line in the commit's record.
    pub fn bytes(&self) -> usize {
        const FIXED: usize = 256;
        let intents: usize = self
            .intents
            .iter()
            .map(|intent| {
                let fields = intent.fields.as_ref().map_or(0, |fields| fields.bytes().len());
                let identity = match &intent.identity {
                    Identity::Entity { type_name, key } => type_name.len() + key.len(),
                    Identity::Relation { type_name, left_key, right_key, instance_key } => {
                        type_name.len() + left_key.len() + right_key.len() + instance_key.len()
                    }
                };
                FIXED + 2 * fields + 3 * identity
            })
            .sum();
        FIXED + intents + self.meta.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}
