//! Typed state over the store port: reads entities and relations now or as of a commit, their history and their schemas,
//! and migrates drifted types. Has the traits of the user types that are stored ([`Entity`], [`Relation`]; the derives
//! of `millrace-macros` implement them).
//!
//! Not in this crate: commits. [`Pending`] collects declarations and updates, [`SchemaBook`] checks them against the
//! stored schemas; their caller commits the result (`millrace-session`). Only a migration writes, also through its
//! caller. Events and handlers are in `millrace-session`, too.
//!
//! Start with [`State`].

mod aggregate;
mod commits;
mod edges;
mod ends;
mod error;
mod fit;
mod group;
mod history;
mod migrate;
mod narrow;
mod pending;
mod query;
mod reads;
mod scan;
mod schema;
mod stored;
mod top;
mod type_history;
mod typed;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{Identity, Intent, Namespace, Space, StateCommit, keys};
use millrace_store::{KeyRange, Store};

pub use commits::{CommitRecord, LIST_COMMITS_MAX};
pub use edges::{Edge, Edges};
pub use error::StateError;
pub use group::{GROUPS_MAX, Grouped};
pub use history::Version;
pub use migrate::{
    Commit, MIGRATION_BYTES_MAX, MIGRATION_ROWS_MAX, Migrated, Migration, MigrationError, MigrationPlan,
    TypePlan,
};
pub use pending::{Expectation, Origin, Pending, Resolved};
pub use query::{Pages, Query, ROWS_MAX};
pub use reads::{READ_BYTES_MAX, READS_MAX};
pub use schema::{Admitted, Drift, SchemaBook};
pub use stored::Stored;
pub use type_history::{TypeHistory, TypeVersion};
pub use typed::{
    CanonicalError, Declared, Entity, Field, Filter, IntoIntents, KEY_BYTES_MAX, Key, Many, NumberField, One,
    Operand, Order, OrderedField, Relation, Schema, SchemaField, Stateful, TextField, canonical,
    canonical_text, entity_identity, relation_identity,
};

use reads::{Known, Reads};
use scan::Found;

/// The state of a namespace, for reading.
///
/// A query of the newest state reads page by page: each page is of one moment, the next may be of a later one. Where
/// that matters, read `as_of` a commit: the state as of a past commit never changes.
#[derive(Clone)]
pub struct State {
    store: Arc<dyn Store>,
    namespace: Namespace,
    /// Remembers what is read, if a commit depends on it.
    reads: Option<Arc<Reads>>,
}

impl State {
    pub fn new(store: Arc<dyn Store>, namespace: Namespace) -> State {
        State { store, namespace, reads: None }
    }

    /// Returns the same state; everything that is read through it is remembered, until [`State::forget_reads`].
    #[must_use]
    pub fn tracked(&self) -> State {
        State { reads: Some(Arc::default()), ..self.clone() }
    }

    /// Returns the same state; reads through it are not checked by any commit.
    #[must_use]
    pub fn unchecked(&self) -> State {
        State { reads: None, ..self.clone() }
    }

    pub(crate) fn reads(&self) -> Option<&Reads> {
        self.reads.as_deref()
    }

    /// Forgets what was read through a [`State::tracked`] state, because everything is to be read again.
    pub fn forget_reads(&self) {
        if let Some(reads) = self.reads() {
            reads.clear();
        }
    }

    /// Notes that a commit of these intents succeeded: identities that it checked are now as they were declared.
    pub fn note_committed(&self, resolved: &Resolved, intents: &[Intent], commit: Option<StateCommit>) {
        let Some(reads) = self.reads() else { return };
        let checked = resolved.expected.iter().filter(|expected| expected.origin != Origin::Carried);
        let checked: BTreeMap<String, Option<Bytes>> =
            checked.map(|expected| (expected.key.clone(), expected.head.clone())).collect();
        reads.committed(&self.namespace, intents, &checked, commit);
    }

    pub(crate) fn known(&self, key: &str) -> Known {
        self.reads().map_or(Known::NotRead, |reads| reads.known(key))
    }

    /// Remembers rows of the newest state that were returned to the caller.
    pub(crate) fn note_reads<'f>(&self, found: impl IntoIterator<Item = &'f Found>) {
        if let Some(reads) = self.reads() {
            found.into_iter().for_each(|found| reads.note(&found.key, found.head.as_ref()));
        }
    }

    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns the entity with this key as it is now.
    pub fn get<T: Entity>(&self, key: impl Key) -> Result<Option<Stored<T>>, StateError> {
        self.find(&entity_identity::<T>(key), None)
    }

    /// Returns the entity with this key as it was right after the commit.
    pub fn get_as_of<T: Entity>(
        &self,
        key: impl Key,
        commit: StateCommit,
    ) -> Result<Option<Stored<T>>, StateError> {
        self.find(&entity_identity::<T>(key), Some(commit))
    }

    /// Returns the relation between two entities, by the keys of both. The instance key is `""` for types that declare
    /// none.
    pub fn get_relation<R: Relation>(
        &self,
        left: impl Key,
        right: impl Key,
        instance: impl Key,
    ) -> Result<Option<Stored<R>>, StateError> {
        self.find(&relation_identity::<R>(left, right, instance), None)
    }

    /// Begins a query of the entities or relations of a type.
    pub fn query<T: Stateful>(&self) -> Query<T> {
        Query::new(self.clone())
    }

    /// Returns the newest commit of state in the store, over all namespaces.
    pub fn head(&self) -> Result<StateCommit, StateError> {
        let Some(value) = self.row(Space::Kv, keys::STATE_COMMITS)? else { return Ok(StateCommit(0)) };
        let parsed = serde_json::from_slice(&value);
        let damaged = |source| millrace_model::RowError { key: keys::STATE_COMMITS.to_owned(), source };
        Ok(parsed.map_err(damaged)?)
    }

    /// Returns the value of a row of the store.
    pub fn row(&self, space: Space, key: &str) -> Result<Option<Bytes>, StateError> {
        let range = KeyRange { from: key.to_owned(), to: Some(format!("{key}\0")) };
        Ok(self.store.scan(space, &range, 1)?.pop().map(|row| row.value))
    }

    pub(crate) fn find<T: Stateful>(
        &self,
        identity: &Identity,
        as_of: Option<StateCommit>,
    ) -> Result<Option<Stored<T>>, StateError> {
        let key = keys::identity(&self.namespace, identity);
        let found = scan::find(self.store(), &key, as_of)?;
        match (&found, self.reads()) {
            // The past does not change, so reads of it need no check.
            (_, Some(_)) if as_of.is_some() => {}
            (Some(found), Some(reads)) => reads.note(&key, found.head.as_ref()),
            (None, Some(reads)) => reads.note(&key, None),
            (_, None) => {}
        }
        found.map(Stored::decode).transpose()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
