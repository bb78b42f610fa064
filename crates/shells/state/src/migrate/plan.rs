//! The plan of a migration: a dry run.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::ControlFlow;

use bytes::Bytes;
use millrace_model::{SchemaRow, Space, StateCommit, StateKind, keys};
use sha2::{Digest, Sha256};

use super::{Migration, MigrationTarget, Unfit};
use crate::error::StateError;
use crate::scan::{Found, StateWalk};
use crate::schema::Drift;

/// How many of the rows that cannot be upgraded a plan names.
const FAILURES_MAX: usize = 10;

/// The changes that a migration would make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationPlan {
    /// Types that have drifted, or whose last migration is unfinished.
    pub types: Vec<TypePlan>,
    /// The newest commit that the plan has seen.
    pub head: StateCommit,
    /// Proves that the plan was examined. Valid until anything is committed.
    pub token: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypePlan {
    pub kind: StateKind,
    pub type_name: String,
    pub from_version: u32,
    pub to_version: u32,
    /// `None` if there is only an unfinished migration to finish.
    pub drift: Option<Drift>,
    /// Rows to be rewritten.
    pub rows: u64,
    /// Versions that rows have and that no upgrader is given for.
    pub missing_upgraders: Vec<u32>,
    /// Key and reason of the first rows that cannot be upgraded.
    pub failures: Vec<(String, String)>,
}

impl MigrationPlan {
    pub fn has_changes(&self) -> bool {
        !self.types.is_empty()
    }
}

/// A type to be migrated, with its present schema row.
pub(super) struct MigrationStep<'a> {
    pub(super) target: &'a MigrationTarget,
    pub(super) plan: TypePlan,
    pub(super) key: String,
    pub(super) stored: Bytes,
    pub(super) row: SchemaRow,
}

impl Migration {
    /// Returns what would be done. Reads every row of the drifted types and tries the upgraders on them; writes
    /// nothing.
    pub fn plan(&self) -> Result<MigrationPlan, StateError> {
        Ok(self.steps()?.0)
    }

    pub(super) fn steps(&self) -> Result<(MigrationPlan, Vec<MigrationStep<'_>>), StateError> {
        let head = self.state.head()?;
        let mut steps = Vec::new();
        for (&(kind, name), target) in &self.types {
            let key = keys::state_type(self.state.namespace(), kind, name);
            // A type that was never written needs no migration: its first write stores its schema.
            let Some(stored) = self.state.row(Space::Schemas, &key)? else { continue };
            let row = SchemaRow::decode(&key, &stored)?;
            let drift = Drift::between(kind, &row, &target.schema);
            if drift.is_none() && !row.rewriting {
                continue;
            }
            let plan = self.look_at(kind, target, &row, drift)?;
            steps.push(MigrationStep { target, plan, key, stored, row });
        }
        let types: Vec<TypePlan> = steps.iter().map(|step| step.plan.clone()).collect();
        let token = token(self.state.namespace().as_str(), head, &types);
        Ok((MigrationPlan { types, head, token }, steps))
    }

    fn look_at(
        &self,
        kind: StateKind,
        target: &MigrationTarget,
        row: &SchemaRow,
        drift: Option<Drift>,
    ) -> Result<TypePlan, StateError> {
        let to_version = row.version + u32::from(drift.is_some());
        let (mut rows, mut missing, mut failures) = (0, BTreeSet::new(), Vec::new());
        let prefix = format!("{}/", keys::state_type(self.state.namespace(), kind, target.schema.type_name));
        StateWalk { prefix: &prefix, right: None, after: None, as_of: None }.visit(
            self.state.store(),
            &mut |found| {
                if found.schema < to_version {
                    rows += 1;
                    match self.upgraded(target, &found, to_version) {
                        Err(Unfit::MissingUpgrader(version)) => {
                            missing.insert(version);
                        }
                        Err(Unfit::Failed(reason)) if failures.len() < FAILURES_MAX => {
                            failures.push((found.key, reason));
                        }
                        Err(Unfit::Failed(_)) | Ok(_) => {}
                    }
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(TypePlan {
            kind,
            type_name: target.schema.type_name.to_owned(),
            from_version: row.version,
            to_version,
            drift,
            rows,
            missing_upgraders: missing.into_iter().collect(),
            failures,
        })
    }

    /// Upgrades a row. An upgrader may change fields but not the identity: the old identity would be left behind.
    pub(super) fn upgraded(
        &self,
        target: &MigrationTarget,
        found: &Found,
        to_version: u32,
    ) -> Result<millrace_model::Intent, Unfit> {
        let (identity, fields) = target.upgrade(found.schema, to_version, found.fields.clone())?;
        if keys::identity(self.state.namespace(), &identity) != found.key {
            return Err(Unfit::Failed("the upgrader changed a key".to_owned()));
        }
        Ok(millrace_model::Intent { identity, fields: Some(fields), schema: to_version })
    }
}

/// Tokens are only compared with tokens that the same program made, so hashing the plan's debug form is enough.
fn token(namespace: &str, head: StateCommit, types: &[TypePlan]) -> String {
    let digest = Sha256::digest(format!("{namespace} {head:?} {types:?}"));
    digest.iter().fold(String::new(), |mut token, byte| {
        // Writing into a `String` cannot fail.
        let _ = write!(token, "{byte:02x}");
        token
    })
}
