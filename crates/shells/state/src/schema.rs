//! Schemas of state: stored with the first write of a type, versioned, and checked by every write.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ops::ControlFlow;

use bytes::Bytes;
use millrace_model::{Check, Intent, Op, SchemaRow, Space, StateCommit, StateKind, keys};
use millrace_store::KeyRange;

use super::State;
use super::error::{StateError, kind_name};
use super::fit::{self, Carried};
use super::pending::Resolved;
use super::scan;
use crate::typed::{Schema, Stateful};

/// How the program's type differs from the stored one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    pub kind: StateKind,
    pub type_name: String,
    pub stored_version: u32,
    pub added_fields: Vec<String>,
    pub removed_fields: Vec<String>,
    /// Name, stored type and the program's type of each field.
    pub changed_fields: Vec<(String, String, String)>,
}

/// The parts of a commit: intents with their schema versions, one per identity, and the checks that keep those valid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admitted {
    pub intents: Vec<Intent>,
    pub checks: Vec<Check>,
    pub ops: Vec<Op>,
    /// Fields that the program's types lack and that must stay as they are.
    pub(crate) carried: Carried,
}

impl Admitted {
    /// Adds the fields that the program lacks to its declarations, with their stored values. If those change before
    /// the commit, the commit is repeated, as with an update.
    pub fn carry_over(&mut self, state: &State, resolved: &mut Resolved) -> Result<(), StateError> {
        match self.carried.is_empty() {
            true => Ok(()),
            false => fit::carry_over(state, &self.carried, &mut self.intents, &mut resolved.expected),
        }
    }
}

/// The schemas that a session has seen. If one of the checks made here refuses a commit, another process has changed
/// the schemas: call [`SchemaBook::forget`], admit again, and try once more.
#[derive(Debug, Default)]
pub struct SchemaBook {
    known: BTreeMap<(StateKind, &'static str), (Bytes, SchemaRow)>,
}

impl SchemaBook {
    /// Looks the schemas up (once per type) and refuses types that have drifted.
    pub fn admit(&mut self, state: &State, resolved: &Resolved) -> Result<Admitted, StateError> {
        match self.admit_as_known(state, resolved) {
            // The remembered schemas may be out of date, so they are read again before a type is refused.
            Err(StateError::SchemaOutdated(_) | StateError::MigrationUnfinished { .. }) => {
                self.forget();
                self.admit_as_known(state, resolved)
            }
            answer => answer,
        }
    }

    fn admit_as_known(&mut self, state: &State, resolved: &Resolved) -> Result<Admitted, StateError> {
        let mut admitted = Admitted::default();
        let mut versions = BTreeMap::new();
        let mut drifts = Vec::new();
        for (&(kind, name), schema) in &resolved.schemas {
            let key = keys::state_type(state.namespace(), kind, name);
            let Some((value, row)) = self.find(state, kind, name, &key)? else {
                // The number of this commit is not known yet, but no row of this type can be older than the next
                // commit.
                let since = StateCommit(state.head()?.0 + 1);
                let row = first_row(schema, 1, since);
                admitted.checks.push(Check::Absent { space: Space::Schemas, key: key.clone() });
                admitted.ops.push(Op::Put { space: Space::Schemas, key, value: row.encode() });
                versions.insert((kind, name), 1);
                continue;
            };
            if row.rewriting {
                let type_name = name.to_owned();
                return Err(StateError::MigrationUnfinished { type_name, version: row.version });
            }
            let drift = Drift::between(kind, row, schema);
            let space = Space::Schemas;
            admitted.checks.push(Check::Equals { space, key: key.clone(), value: value.clone() });
            versions.insert((kind, name), row.version);
            let lacked = fit::carried(row, schema);
            if drift.is_none() && !lacked.is_empty() {
                admitted.carried.insert((kind, name.to_owned()), lacked);
            }
            if let Some(row) = fit::extended(row, schema).filter(|_| drift.is_none()) {
                admitted.ops.push(Op::Put { space, key, value: row.encode() });
                // Read again next time, after this commit has written it.
                self.known.remove(&(kind, name));
            }
            drifts.extend(drift);
        }
        if !drifts.is_empty() {
            return Err(StateError::SchemaOutdated(drifts));
        }
        admitted.intents.clone_from(&resolved.intents);
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
                // A missing row is looked up again next time.
                let Some(value) = state.row(Space::Schemas, key)? else { return Ok(None) };
                let row = SchemaRow::decode(key, &value)?;
                unknown.insert((value, row))
            }
        }))
    }
}

impl State {
    /// Returns every version of a type's schema that was ever stored, the oldest first.
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

/// Returns the schema row of a version that begins with this type.
pub(crate) fn first_row(schema: &Schema, version: u32, since: StateCommit) -> SchemaRow {
    SchemaRow {
        version,
        fields: schema.fields.clone(),
        shapes: schema.shapes.clone(),
        optional: schema.optional.clone(),
        since,
        ..SchemaRow::default()
    }
}

/// Returns the key under which a replaced version is kept: history was written under it.
pub(crate) fn archived_schema(key: &str, version: u32) -> String {
    format!("{key}//{version:08x}")
}

fn archived_schemas(key: &str) -> KeyRange {
    KeyRange::prefix(&format!("{key}//"))
}

impl Drift {
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
