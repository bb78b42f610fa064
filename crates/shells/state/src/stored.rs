//! A piece of state as it came from the store.

use std::ops::Deref;

use millrace_model::StateCommit;

use super::error::StateError;
use super::scan::Found;
use crate::typed::Stateful;

/// An entity or relation with the commit that wrote it. Dereferences to the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<T> {
    pub value: T,
    /// The commit that last changed it.
    pub commit: StateCommit,
    /// The version of the schema under which it was written.
    pub schema: u32,
}

impl<T> Stored<T> {
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> Deref for Stored<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Stateful> Stored<T> {
    pub(crate) fn decode(found: Found) -> Result<Stored<T>, StateError> {
        let Found { key, commit, schema, fields, .. } = found;
        match serde_json::from_value(fields) {
            Ok(value) => Ok(Stored { value, commit, schema }),
            Err(error) => {
                Err(StateError::Undecodable { type_name: T::TYPE, key, schema, reason: error.to_string() })
            }
        }
    }
}
