//! The changes that wait for the next commit, and their result: declared states, updates of stored state, and what must
//! not have changed meanwhile.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{HeadRow, Identity, Intent, JsonText, Space, StateKind, keys};

use super::State;
use super::error::{StateError, kind_name};
use super::reads::Known;
use crate::typed::{Declared, Schema, Stateful, apply_to};

/// Computes the new fields from the stored ones; `None` = the identity does not exist.
pub(crate) type Apply = dyn Fn(Option<&str>) -> Result<Option<JsonText>, StateError> + Send + Sync;

/// The changes that `ensure`, `retract` and `update` have queued for the next commit.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    changes: Vec<Change>,
    schemas: BTreeMap<(StateKind, &'static str), Schema>,
}

#[derive(Clone)]
enum Change {
    Set(Intent),
    Update { identity: Identity, apply: Arc<Apply> },
}

/// The result of all waiting changes on the present state, with one intent per identity.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    pub(crate) intents: Vec<Intent>,
    pub(crate) schemas: BTreeMap<(StateKind, &'static str), Schema>,
    /// The rows from which the intents were made, in the order of the intents.
    pub expected: Vec<Expectation>,
}

/// An identity whose row must be unchanged when the commit is made.
#[derive(Clone, Debug)]
pub struct Expectation {
    pub identity: Identity,
    /// The key of its row.
    pub key: String,
    /// The row that was read; `None` = there was none.
    pub head: Option<Bytes>,
    pub origin: Origin,
}

/// Why an identity must be unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The caller has read it, and its declaration may follow from that.
    Read,
    /// An update has just read it: if it has changed by the commit, the update is applied again.
    Update,
    /// Fields that the program lacks were carried over from it, without the caller's knowledge.
    Carried,
}

/// An identity while its changes are applied.
struct Slot {
    identity: Identity,
    fields: Option<JsonText>,
    /// The row that an update has read.
    base: Option<Option<Bytes>>,
}

impl Pending {
    /// Queues declarations. Refuses two types with the same name: each would see the other's rows as drifted.
    pub fn push(&mut self, declared: Declared) -> Result<(), StateError> {
        let Declared { kind, schema, intents } = declared;
        self.know(kind, &schema)?;
        self.changes.extend(intents.into_iter().map(Change::Set));
        Ok(())
    }

    /// Queues an update. `change` is called when this is committed, and again whenever another commit was faster.
    pub fn update<T, R>(
        &mut self,
        identity: Identity,
        change: impl Fn(Option<T>) -> R + Send + Sync + 'static,
    ) -> Result<(), StateError>
    where
        T: Stateful,
        R: Into<Option<T>>,
    {
        let apply = apply_to(identity.clone(), change)?;
        self.know(identity.kind(), &T::schema())?;
        self.changes.push(Change::Update { identity, apply });
        Ok(())
    }

    fn know(&mut self, kind: StateKind, schema: &Schema) -> Result<(), StateError> {
        let type_name = schema.type_name;
        let known = self.schemas.entry((kind, type_name)).or_insert_with(|| schema.clone());
        if known != schema {
            return Err(StateError::NameShared { kind: kind_name(kind), type_name: type_name.to_owned() });
        }
        Ok(())
    }

    /// Queues later changes behind these.
    pub fn append(&mut self, later: Pending) -> Result<(), StateError> {
        for ((kind, _), schema) in later.schemas {
            self.know(kind, &schema)?;
        }
        self.changes.extend(later.changes);
        Ok(())
    }

    /// Returns the number of queued changes, including several for the same identity.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub fn clear(&mut self) {
        self.changes.clear();
        self.schemas.clear();
    }

    /// Reads what updates need and applies them. Changes of the same identity are applied one on top of the other, so
    /// that of plain declarations the last one wins.
    pub fn resolve(&self, state: &State) -> Result<Resolved, StateError> {
        let mut places: BTreeMap<&Identity, usize> = BTreeMap::new();
        let mut slots: Vec<Slot> = Vec::with_capacity(self.changes.len());
        for change in &self.changes {
            let identity = change.identity();
            let place = match places.get(identity) {
                Some(place) => *place,
                None => {
                    places.insert(identity, slots.len());
                    slots.push(change.begin(state)?);
                    slots.len() - 1
                }
            };
            let slot = &mut slots[place];
            match change {
                Change::Set(intent) => slot.fields.clone_from(&intent.fields),
                Change::Update { apply, .. } => {
                    slot.fields = apply(slot.fields.as_ref().map(JsonText::as_str))?;
                }
            }
        }
        let mut resolved = Resolved { schemas: self.schemas.clone(), ..Resolved::default() };
        for Slot { identity, fields, base } in slots {
            let key = keys::identity(state.namespace(), &identity);
            let origin = if base.is_some() { Origin::Update } else { Origin::Read };
            let known = match base {
                Some(head) => Known::Read(head),
                None => state.known(&key),
            };
            match known {
                Known::Read(head) => {
                    let identity = identity.clone();
                    resolved.expected.push(Expectation { identity, key, head, origin });
                }
                Known::NotRead => {}
                Known::Forgotten => return Err(StateError::ReadForgotten { identity }),
            }
            // The schema version is filled in when the schema is looked up.
            resolved.intents.push(Intent { identity, fields, schema: 0 });
        }
        Ok(resolved)
    }
}

impl Change {
    fn identity(&self) -> &Identity {
        match self {
            Change::Set(intent) => &intent.identity,
            Change::Update { identity, .. } => identity,
        }
    }

    /// Reads the stored row if the first change of an identity is an update; a plain declaration does not need it.
    fn begin(&self, state: &State) -> Result<Slot, StateError> {
        let identity = self.identity().clone();
        if let Change::Set(_) = self {
            return Ok(Slot { identity, fields: None, base: None });
        }
        let key = keys::identity(state.namespace(), &identity);
        let head = state.row(Space::Heads, &key)?;
        let row = head.as_ref().map(|row| HeadRow::decode(&key, row)).transpose()?;
        let fields = row.map(|row| JsonText::from_stored(row.fields.into_bytes().into()));
        Ok(Slot { identity, fields, base: Some(head) })
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Set(intent) => intent.fmt(f),
            Change::Update { identity, .. } => f.debug_tuple("Update").field(identity).finish(),
        }
    }
}
