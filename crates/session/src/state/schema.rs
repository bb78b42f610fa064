//! Schemas of state: stored at first sight, versioned, and in the way of every write that does not fit.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ops::ControlFlow;

use bytes::Bytes;
use millrace_model::{Check, Intent, Op, SchemaRow, Space, StateCommit, StateKind, keys};
use millrace_store::KeyRange;

use super::State;
use super::error::{StateError, kind_name};
use super::scan;
use crate::typed::{Declared, Schema, Stateful, last_wins};

/// How the program's type differs from the stored one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    pub kind: StateKind,
    pub type_name: String,
    pub stored_version: u32,
    pub added_fields: Vec<String>,
    pub removed_fields: Vec<String>,
    /// Name, stored spelling, the program's spelling.
    pub changed_fields: Vec<(String, String, String)>,
}

/// What `ensure` and `retract` have queued up until the next commit.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    intents: Vec<Intent>,
    schemas: BTreeMap<(StateKind, &'static str), Schema>,
}

/// What a commit needs: intents with their schema versions, one per identity, and what keeps them true.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admitted {
    pub intents: Vec<Intent>,
    pub checks: Vec<Check>,
    pub ops: Vec<Op>,
}

/// The schemas a session has seen. A commit that is refused by one of the checks made here means that somebody else
/// changed them: [`SchemaBook::forget`], admit again, and try once more.
#[derive(Debug, Default)]
pub struct SchemaBook {
    known: BTreeMap<(StateKind, &'static str), (Bytes, SchemaRow)>,
}

impl Pending {
    /// Two types of one name would take turns in calling each other drifted.
    pub fn push(&mut self, declared: Declared) -> Result<(), StateError> {
        let Declared { kind, schema, intents } = declared;
        let type_name = schema.type_name;
        let known = self.schemas.entry((kind, type_name)).or_insert_with(|| schema.clone());
        if *known != schema {
            return Err(StateError::NameShared { kind: kind_name(kind), type_name: type_name.to_owned() });
        }
        self.intents.extend(intents);
        Ok(())
    }

    /// What was declared later comes behind.
    pub fn append(&mut self, later: Pending) -> Result<(), StateError> {
        for ((kind, type_name), schema) in later.schemas {
            let known = self.schemas.entry((kind, type_name)).or_insert_with(|| schema.clone());
            if *known != schema {
                return Err(StateError::NameShared {
                    kind: kind_name(kind),
                    type_name: type_name.to_owned(),
                });
            }
        }
        self.intents.extend(later.intents);
        Ok(())
    }

    /// As they were declared, doubles included.
    pub fn len(&self) -> usize {
        self.intents.len()
    }

    pub fn is_empty(&self) -> bool {
        self.intents.is_empty()
    }

    pub fn clear(&mut self) {
        self.intents.clear();
        self.schemas.clear();
    }
}

impl SchemaBook {
    /// Looks the schemas up (once per type) and refuses types that have drifted. `pending` stays as it is.
    pub fn admit(&mut self, state: &State, pending: &Pending) -> Result<Admitted, StateError> {
        match self.admit_as_known(state, pending) {
            // What is remembered may be out of date: nobody is refused by memory alone.
            Err(StateError::SchemaOutdated(_) | StateError::MigrationUnfinished { .. }) => {
                self.forget();
                self.admit_as_known(state, pending)
            }
            answer => answer,
        }
    }

    fn admit_as_known(&mut self, state: &State, pending: &Pending) -> Result<Admitted, StateError> {
        let mut admitted = Admitted::default();
        let mut versions = BTreeMap::new();
        let mut drifts = Vec::new();
        for (&(kind, name), schema) in &pending.schemas {
            let key = keys::state_type(state.namespace(), kind, name);
            let Some((value, row)) = self.find(state, kind, name, &key)? else {
                // The commit's own number is not known yet, but no row of this type can be older than the next one.
                let since = StateCommit(state.head()?.0 + 1);
                let row = SchemaRow { version: 1, fields: schema.fields.clone(), since, rewriting: false };
                admitted.checks.push(Check::Absent { space: Space::Schemas, key: key.clone() });
                admitted.ops.push(Op::Put { space: Space::Schemas, key, value: row.encode() });
                versions.insert((kind, name), 1);
                continue;
            };
            if row.rewriting {
                let type_name = name.to_owned();
                return Err(StateError::MigrationUnfinished { type_name, version: row.version });
            }
            drifts.extend(Drift::between(kind, row, schema));
            admitted.checks.push(Check::Equals { space: Space::Schemas, key, value: value.clone() });
            versions.insert((kind, name), row.version);
        }
        if !drifts.is_empty() {
            return Err(StateError::SchemaOutdated(drifts));
        }
        admitted.intents = last_wins(pending.intents.clone());
        for intent in &mut admitted.intents {
            let of_type = (intent.identity.kind(), intent.identity.type_name());
            intent.schema = versions.get(&of_type).copied().unwrap_or(0);
        }
        Ok(admitted)
    }

    pub fn forget(&mut self) {
        self.known.clear();
    }

    fn find(
        &mut self,
        state: &State,
        kind: StateKind,
        name: &'static str,
        key: &str,
    ) -> Result<Option<&(Bytes, SchemaRow)>, StateError> {
        Ok(Some(match self.known.entry((kind, name)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                // A row that is not there yet is looked for again next time.
                let Some(value) = state.row(Space::Schemas, key)? else { return Ok(None) };
                let row = SchemaRow::decode(key, &value)?;
                unknown.insert((value, row))
            }
        }))
    }
}

impl State {
    /// Every version of a type's schema that was ever stored, the oldest first.
    pub fn schema_versions<T: Stateful>(&self) -> Result<Vec<SchemaRow>, StateError> {
        let key = keys::state_type(self.namespace(), T::KIND, T::TYPE);
        let mut versions = Vec::new();
        scan::rows(self.store(), Space::Schemas, archived_schemas(&key), &mut |row| {
            versions.push(SchemaRow::decode(&row.key, &row.value)?);
            Ok(ControlFlow::Continue(()))
        })?;
        let newest = self.row(Space::Schemas, &key)?;
        versions.extend(newest.map(|value| SchemaRow::decode(&key, &value)).transpose()?);
        Ok(versions)
    }
}

/// Where a version goes when another takes its place: history was written under it.
pub(crate) fn archived_schema(key: &str, version: u32) -> String {
    format!("{key}//{version:08x}")
}

fn archived_schemas(key: &str) -> KeyRange {
    KeyRange::prefix(&format!("{key}//"))
}

impl Drift {
    pub(crate) fn between(kind: StateKind, stored: &SchemaRow, current: &Schema) -> Option<Drift> {
        let (old, new) = (&stored.fields, &current.fields);
        let missing_in = |from: &BTreeMap<String, String>, of: &BTreeMap<String, String>| -> Vec<String> {
            of.keys().filter(|name| !from.contains_key(*name)).cloned().collect()
        };
        let changed = new.iter().filter_map(|(name, spelled)| {
            let before = old.get(name).filter(|before| *before != spelled)?;
            Some((name.clone(), before.clone(), spelled.clone()))
        });
        let drift = Drift {
            kind,
            type_name: current.type_name.to_owned(),
            stored_version: stored.version,
            added_fields: missing_in(old, new),
            removed_fields: missing_in(new, old),
            changed_fields: changed.collect(),
        };
        (old != new).then_some(drift)
    }

    pub(crate) fn list(drifts: &[Drift]) -> String {
        drifts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}` version {}", kind_name(self.kind), self.type_name, self.stored_version)?;
        let mut sep = ": ";
        for (word, names) in [("added", &self.added_fields), ("removed", &self.removed_fields)] {
            for name in names {
                write!(f, "{sep}{word} `{name}`")?;
                sep = ", ";
            }
        }
        for (name, before, now) in &self.changed_fields {
            write!(f, "{sep}`{name}` was {before} and is {now}")?;
            sep = ", ";
        }
        Ok(())
    }
}
