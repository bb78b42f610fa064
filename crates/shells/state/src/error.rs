//! The errors of state, grouped by what the caller has to do next.

use millrace_model::{Identity, RowError, StateKind};
use millrace_store::StoreError;

use super::schema::Drift;
use crate::typed::CanonicalError;

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("a `{type_name}` cannot be stored: {source}")]
    Unwritable { type_name: String, source: CanonicalError },
    #[error(
        "a `{type_name}` cannot be read back from what it is written as ({reason}): look for floats that are not finite \
         and fields that are skipped on one way only"
    )]
    Unreadable { type_name: String, reason: String },
    #[error("a `{type_name}` has an empty {role}: give it at least one character")]
    EmptyKey { type_name: String, role: &'static str },
    #[error(
        "a `{type_name}` declares no instance key: pass \"\" in its place, or put #[instance_key] on a field"
    )]
    NoInstanceKey { type_name: String },
    #[error("a key of a `{type_name}` has {bytes} bytes, at most {max} are allowed")]
    KeyTooLong { type_name: String, bytes: usize, max: usize },
    /// The program's types differ from those with which the stored rows were written. Nothing was written.
    #[error("the stored schema is another: {}; migrate, or go back to the program that fits", Drift::list(.0))]
    SchemaOutdated(Vec<Drift>),
    #[error(
        "two types of this program are both stored as {kind} `{type_name}`: give one of them another name"
    )]
    NameShared { kind: &'static str, type_name: String },
    /// Rows are being rewritten, or were when the migrating program died.
    #[error(
        "`{type_name}` is being migrated to version {version}: wait for it, or run the migration again to finish it"
    )]
    MigrationUnfinished { type_name: String, version: u32 },
    #[error("more than {limit} rows match: set a limit, narrow the filter, or go through them by pages")]
    TooManyRows { limit: usize },
    #[error("`{field}` has more than {limit} different values: narrow the filter, or group by another field")]
    TooManyGroups { field: &'static str, limit: usize },
    #[error("pages come in the order of keys: leave out order_by, limit and offset, or collect with a limit")]
    PagesHaveNoOrder,
    #[error("the filter on `{field}` holds a value that cannot be written as JSON: {reason}")]
    BadFilter { field: &'static str, reason: String },
    /// The row was written under another schema than the program's.
    #[error(
        "the `{type_name}` at {key} (schema version {schema}) does not fit the program's type ({reason}): migrate it, \
         or read it as history"
    )]
    Undecodable { type_name: &'static str, key: String, schema: u32, reason: String },
    /// Nothing was written.
    #[error("the update of {identity} gave back {other}: an update keeps the key")]
    UpdateChangedKey { identity: Box<Identity>, other: Box<Identity> },
    /// The stored row was written under another schema than the program's. Nothing was written.
    #[error("{identity} does not fit the program's type ({reason}): migrate it before it is updated")]
    UpdateUndecodable { identity: Identity, reason: String },
    /// Nothing was written.
    #[error(
        "this run has read too much to know whether {identity} was read before: get it once more before it is declared, \
         or read the others through State::unchecked"
    )]
    ReadForgotten { identity: Identity },
    #[error(transparent)]
    Damaged(#[from] RowError),
    #[error(transparent)]
    Migration(#[from] super::migrate::MigrationError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(crate) fn kind_name(kind: StateKind) -> &'static str {
    match kind {
        StateKind::Entity => "entity",
        StateKind::Relation => "relation",
    }
}
