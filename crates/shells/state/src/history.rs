//! All versions of an identity, typed or not.

use std::ops::ControlFlow;

use millrace_model::Space;
use millrace_model::{Identity, StateCommit, VersionRow, keys};
use serde_json::Value;

use super::State;
use super::error::StateError;
use super::query::ROWS_MAX;
use super::scan;
use crate::typed::{Entity, Key, Relation, Stateful, entity_identity, relation_identity};

/// The state of an identity after a commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    pub commit: StateCommit,
    /// The version of the schema under which it was written.
    pub schema: u32,
    /// The fields, or `None` if the identity was retracted.
    pub fields: Option<Value>,
}

impl Version {
    /// Decodes the fields as today's type, if they fit.
    pub fn decode<T: Stateful>(&self) -> Result<Option<T>, serde_json::Error> {
        self.fields.clone().map(serde_json::from_value).transpose()
    }
}

impl State {
    /// Returns every version of an entity after commit `since` (0 = from the first), the oldest first.
    pub fn history<T: Entity>(&self, key: impl Key, since: StateCommit) -> Result<Vec<Version>, StateError> {
        self.versions(&entity_identity::<T>(key), since)
    }

    /// Returns every version of a relation after commit `since`, the oldest first.
    pub fn relation_history<R: Relation>(
        &self,
        left: impl Key,
        right: impl Key,
        instance: impl Key,
        since: StateCommit,
    ) -> Result<Vec<Version>, StateError> {
        self.versions(&relation_identity::<R>(left, right, instance), since)
    }

    fn versions(&self, identity: &Identity, since: StateCommit) -> Result<Vec<Version>, StateError> {
        let key = keys::identity(self.namespace(), identity);
        let mut range = scan::versions_of(&key);
        range.from = keys::version(&key, StateCommit(since.0.saturating_add(1)));
        let mut versions = Vec::new();
        scan::rows(self.store(), Space::History, range, &mut |row| {
            let Some((_, commit)) = scan::split_version(&row.key) else {
                return Ok(ControlFlow::Continue(()));
            };
            if versions.len() == ROWS_MAX {
                return Err(StateError::TooManyRows { limit: ROWS_MAX });
            }
            let VersionRow { fields, schema } = VersionRow::decode(&row.key, &row.value)?;
            let fields = fields.map(|fields| scan::parse(&row.key, &fields)).transpose()?;
            versions.push(Version { commit, schema, fields });
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(versions)
    }
}
