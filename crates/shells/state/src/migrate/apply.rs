//! Carries out a migration: locks the types, rewrites their rows commit by commit, unlocks the types.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use millrace_model::{Check, Done, Intent, Op, Outcome, Reconcile, SchemaRow, Space, StateCommit, keys};

use super::plan::MigrationStep;
use super::{Commit, Migration, MigrationError, MigrationPlan, Unfit};
use crate::error::StateError;
use crate::scan::StateWalk;
use crate::schema::{archived_schema, first_row};

/// Rows rewritten by a commit.
pub const MIGRATION_ROWS_MAX: usize = 500;
/// Bytes of fields rewritten by a commit, except that a single row may be larger.
pub const MIGRATION_BYTES_MAX: usize = 2 << 20;

/// The result of a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    pub rows: u64,
    pub commits: u64,
    /// The last commit of the migration.
    pub last: Option<StateCommit>,
}

impl Migration {
    /// Carries out the plan that the token belongs to. Nothing is written if that is not the present plan any more, or
    /// if any row could not be upgraded.
    pub fn apply(&self, token: &str, commit: &mut Commit<'_>) -> Result<Migrated, StateError> {
        let (plan, steps) = self.steps()?;
        if plan.token != token {
            return Err(MigrationError::StaleToken.into());
        }
        complete(&plan)?;
        self.lock(&plan, &steps, commit)?;
        let mut migrated = Migrated::default();
        for step in &steps {
            self.rewrite(step, commit, &mut migrated)?;
        }
        Ok(migrated)
    }

    /// Locks all types in a single batch. From here on only this migration, or another run of it, can write them.
    fn lock(
        &self,
        plan: &MigrationPlan,
        steps: &[MigrationStep<'_>],
        commit: &mut Commit<'_>,
    ) -> Result<(), StateError> {
        let drifted: Vec<&MigrationStep<'_>> =
            steps.iter().filter(|step| step.plan.drift.is_some()).collect();
        if drifted.is_empty() {
            return Ok(());
        }
        // The plan is valid only for exactly this state of the store.
        let key = keys::STATE_COMMITS.to_owned();
        let mut checks = vec![match self.state.row(Space::Kv, &key)? {
            Some(value) => Check::Equals { space: Space::Kv, key, value },
            None => Check::Absent { space: Space::Kv, key },
        }];
        let mut ops = Vec::new();
        for step in drifted {
            checks.push(step.stands());
            let archived = archived_schema(&step.key, step.row.version);
            ops.push(Op::Put { space: Space::Schemas, key: archived, value: step.stored.clone() });
            ops.push(step.put(&step.next(plan.head, step.plan.rows > 0)));
        }
        match commit(checks, ops)? {
            Outcome::Done(_) => Ok(()),
            Outcome::Refused(_) => Err(MigrationError::StaleToken.into()),
        }
    }

    fn rewrite(
        &self,
        step: &MigrationStep<'_>,
        commit: &mut Commit<'_>,
        migrated: &mut Migrated,
    ) -> Result<(), StateError> {
        let interrupted = || MigrationError::Interrupted { type_name: step.plan.type_name.clone() };
        let Some(locked) = self.state.row(Space::Schemas, &step.key)? else {
            return Err(interrupted().into());
        };
        let row = SchemaRow::decode(&step.key, &locked)?;
        if !row.rewriting {
            return Ok(());
        }
        let held = Check::Equals { space: Space::Schemas, key: step.key.clone(), value: locked };
        let mut after = None;
        loop {
            let (intents, last) = self.next_rows(step, after.as_deref())?;
            if intents.is_empty() {
                break;
            }
            let rows = intents.len() as u64;
            match commit(vec![held.clone()], vec![self.reconcile(step, intents)])? {
                Outcome::Done(Done { state, .. }) => {
                    migrated.rows += rows;
                    migrated.commits += u64::from(state.is_some());
                    migrated.last = state.or(migrated.last);
                }
                Outcome::Refused(_) => return Err(interrupted().into()),
            }
            after = last;
        }
        match commit(vec![held], vec![step.put(&SchemaRow { rewriting: false, ..row })])? {
            Outcome::Done(_) => Ok(()),
            Outcome::Refused(_) => Err(interrupted().into()),
        }
    }

    fn reconcile(&self, step: &MigrationStep<'_>, intents: Vec<Intent>) -> Op {
        let meta = [("kind", "migration"), ("migrated_types", step.plan.type_name.as_str())];
        let meta: BTreeMap<String, String> =
            meta.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let namespace = self.state.namespace().clone();
        Op::Reconcile(Reconcile { namespace, meta, intents, events: Vec::new() })
    }

    /// Returns as many rows of older versions as a commit may rewrite, and the key from which to continue.
    fn next_rows(
        &self,
        step: &MigrationStep<'_>,
        after: Option<&str>,
    ) -> Result<(Vec<Intent>, Option<String>), StateError> {
        let prefix = format!("{}/", step.key);
        let (mut intents, mut last, mut bytes) = (Vec::new(), None, 0);
        StateWalk { prefix: &prefix, right: None, after, as_of: None }.visit(
            self.state.store(),
            &mut |found| {
                if found.schema >= step.plan.to_version {
                    return Ok(ControlFlow::Continue(()));
                }
                let intent = self.upgraded(step.target, &found, step.plan.to_version);
                let intent = intent.map_err(|unfit| refused(&step.plan.type_name, &found.key, unfit))?;
                let more = intent.fields.as_ref().map_or(0, |fields| fields.bytes().len());
                if !intents.is_empty() && bytes + more > MIGRATION_BYTES_MAX {
                    return Ok(ControlFlow::Break(()));
                }
                bytes += more;
                intents.push(intent);
                last = Some(found.key);
                let is_full = intents.len() >= MIGRATION_ROWS_MAX;
                Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            },
        )?;
        Ok((intents, last))
    }
}

impl MigrationStep<'_> {
    fn stands(&self) -> Check {
        Check::Equals { space: Space::Schemas, key: self.key.clone(), value: self.stored.clone() }
    }

    fn next(&self, head: StateCommit, rewriting: bool) -> SchemaRow {
        let since = StateCommit(head.0 + 1);
        SchemaRow { rewriting, ..first_row(&self.target.schema, self.plan.to_version, since) }
    }

    fn put(&self, row: &SchemaRow) -> Op {
        Op::Put { space: Space::Schemas, key: self.key.clone(), value: row.encode() }
    }
}

fn complete(plan: &MigrationPlan) -> Result<(), StateError> {
    for planned in &plan.types {
        let type_name = planned.type_name.clone();
        if let Some(&from_version) = planned.missing_upgraders.first() {
            return Err(MigrationError::MissingUpgrader { type_name, from_version }.into());
        }
        if let Some((key, reason)) = planned.failures.first().cloned() {
            return Err(MigrationError::UpgradeFailed { type_name, key, reason }.into());
        }
    }
    Ok(())
}

fn refused(type_name: &str, key: &str, unfit: Unfit) -> StateError {
    let type_name = type_name.to_owned();
    match unfit {
        Unfit::MissingUpgrader(from_version) => MigrationError::MissingUpgrader { type_name, from_version },
        Unfit::Failed(reason) => MigrationError::UpgradeFailed { type_name, key: key.to_owned(), reason },
    }
    .into()
}
