//! Migration of drifted types: first a plan (a dry run, which tries every upgrader on every row), then the same for
//! real, in commits of limited size.
//!
//! While rows are rewritten, the type's schema row says so and nobody else can write the type: old programs do not fit
//! any more, new ones wait. A migration that dies half-way is found unfinished; running it again finishes it.

mod apply;
mod plan;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use millrace_model::{Check, Identity, JsonText, Op, Outcome, StateKind};
use millrace_store::StoreError;
use serde_json::Value;

pub use apply::{MIGRATION_BYTES_MAX, MIGRATION_ROWS_MAX, Migrated};
pub use plan::{MigrationPlan, TypePlan};

use super::State;
use crate::typed::{CanonicalError, Schema, Stateful, canonical};

/// The function by which a migration writes: the caller knows the time and draws the nonce.
pub type Commit<'a> = dyn FnMut(Vec<Check>, Vec<Op>) -> Result<Outcome, StoreError> + 'a;

type Upgrader = Box<dyn Fn(Value) -> Result<Value, Box<dyn Error + Send + Sync>> + Send + Sync>;
/// Decodes upgraded fields as the program's type. Returns their identity, and the fields as the type itself writes
/// them.
type Reader = fn(Value) -> Result<(Identity, JsonText), NotOfType>;

/// Why upgraded fields are not a value of the program's type.
#[derive(Debug, thiserror::Error)]
enum NotOfType {
    #[error(transparent)]
    Decode(#[from] serde_json::Error),
    #[error(transparent)]
    Encode(#[from] CanonicalError),
}

/// The program's types, and the upgraders that turn rows of older versions into them.
pub struct Migration {
    state: State,
    types: BTreeMap<(StateKind, &'static str), MigrationTarget>,
}

struct MigrationTarget {
    schema: Schema,
    read: Reader,
    upgraders: BTreeMap<u32, Upgrader>,
}

#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// Examine a new plan.
    #[error(
        "the token is not that of the present plan: something was committed since, or it is of another plan"
    )]
    StaleToken,
    #[error(
        "rows of `{type_name}` need an upgrader from version {from_version}: add .upgrade::<..>({from_version}, ..)"
    )]
    MissingUpgrader { type_name: String, from_version: u32 },
    #[error("the `{type_name}` at {key} cannot be upgraded: {reason}")]
    UpgradeFailed { type_name: String, key: String, reason: String },
    /// The rows rewritten so far stay rewritten; the others are unchanged.
    #[error("another migration of `{type_name}` got in between: look at a new plan")]
    Interrupted { type_name: String },
}

impl Migration {
    pub fn new(state: State) -> Migration {
        Migration { state, types: BTreeMap::new() }
    }

    /// Adds a type that may have drifted. Enough if it has no rows; otherwise each older version needs an upgrader.
    #[must_use]
    pub fn adopt<T: Stateful>(mut self) -> Migration {
        self.target::<T>();
        self
    }

    /// Adds the function that turns fields of version `from_version` into fields of the next version. Rows that are
    /// several versions behind go through several upgraders.
    #[must_use]
    pub fn upgrade<T: Stateful>(
        mut self,
        from_version: u32,
        upgrader: impl Fn(Value) -> Result<Value, Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Migration {
        self.target::<T>().upgraders.insert(from_version, Box::new(upgrader));
        self
    }

    fn target<T: Stateful>(&mut self) -> &mut MigrationTarget {
        self.types.entry((T::KIND, T::TYPE)).or_insert_with(|| MigrationTarget {
            schema: T::schema(),
            read: read::<T>,
            upgraders: BTreeMap::new(),
        })
    }
}

fn read<T: Stateful>(fields: Value) -> Result<(Identity, JsonText), NotOfType> {
    let value: T = serde_json::from_value(fields)?;
    let fields = canonical(&value)?;
    Ok((value.identity(), fields))
}

enum Unfit {
    MissingUpgrader(u32),
    Failed(String),
}

impl MigrationTarget {
    /// Upgrades a row from its version to the wanted one.
    fn upgrade(&self, from: u32, to: u32, mut fields: Value) -> Result<(Identity, JsonText), Unfit> {
        for version in from..to {
            let Some(upgrader) = self.upgraders.get(&version) else {
                return Err(Unfit::MissingUpgrader(version));
            };
            fields = upgrader(fields).map_err(|error| Unfit::Failed(error.to_string()))?;
        }
        (self.read)(fields).map_err(|error| Unfit::Failed(error.to_string()))
    }
}

impl fmt::Debug for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types = self.types.iter().map(|((_, name), target)| (name, target.upgraders.keys()));
        f.debug_map().entries(types).finish()
    }
}
