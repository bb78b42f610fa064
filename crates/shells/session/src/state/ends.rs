//! Queries of relations by what they connect: the keys of their ends, and the entities there.

use millrace_model::{StateKind, keys};

use super::State;
use super::error::StateError;
use super::query::Query;
use super::scan;
use crate::typed::{Filter, Key, Node, Relation, Stateful};

/// Where the keys of a relation's ends stand in the key of its row, see [`keys::identity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Left = 3,
    Right = 4,
}

impl End {
    /// The escaped key of this end, from the key of the relation's row.
    pub(crate) fn of(self, row_key: &str) -> Option<&str> {
        row_key.split('/').nth(self as usize)
    }
}

/// A condition on the entity at one end.
#[derive(Clone, Debug)]
pub(crate) struct EndFilter {
    end: End,
    type_name: &'static str,
    pub(crate) node: Node,
}

impl EndFilter {
    /// One read. An end without an entity matches nothing, not even a filter for null.
    pub(crate) fn matches(
        &self,
        state: &State,
        row_key: &str,
        as_of: Option<millrace_model::StateCommit>,
    ) -> Result<bool, StateError> {
        let Some(key) = self.end.of(row_key) else { return Ok(false) };
        let entities = keys::state_type(state.namespace(), StateKind::Entity, self.type_name);
        let found = scan::find(state.store(), &format!("{entities}/{key}"), as_of)?;
        Ok(found.is_some_and(|found| self.node.matches(&found.fields)))
    }
}

impl<R: Relation> Query<R> {
    /// Only relations that leave this entity; nothing else is looked at.
    pub fn left(mut self, key: impl Key) -> Query<R> {
        let state_type = keys::state_type(self.select.state.namespace(), R::KIND, R::TYPE);
        self.select.prefix = format!("{state_type}/{}/", keys::escaped(&key.into_key()));
        self
    }

    /// Only relations that reach this entity. Rows are kept by their left end: all keys of the type are looked at, or
    /// of the part that [`Query::left`] names, but only the rows that reach it are read.
    pub fn right(mut self, key: impl Key) -> Query<R> {
        self.select.right = Some(keys::escaped(&key.into_key()));
        self
    }

    /// Only relations between these two; nothing else is looked at.
    pub fn between(mut self, left: impl Key, right: impl Key) -> Query<R> {
        self = self.left(left);
        self.select.prefix = format!("{}{}/", self.select.prefix, keys::escaped(&right.into_key()));
        self
    }

    /// Only relations that leave an entity that matches, as of the same commit. One more read per relation. An entity that
    /// does not exist matches nothing.
    pub fn left_where(
        self,
        filter: impl FnOnce(<R::Left as Stateful>::Fields) -> Filter<R::Left>,
    ) -> Query<R> {
        self.end_where(End::Left, filter)
    }

    /// Only relations that reach an entity that matches, as of the same commit. One more read per relation. An entity that
    /// does not exist matches nothing.
    pub fn right_where(
        self,
        filter: impl FnOnce(<R::Right as Stateful>::Fields) -> Filter<R::Right>,
    ) -> Query<R> {
        self.end_where(End::Right, filter)
    }

    fn end_where<T: Stateful>(mut self, end: End, filter: impl FnOnce(T::Fields) -> Filter<T>) -> Query<R> {
        let node = filter(T::fields()).into_node();
        self.select.ends.push(EndFilter { end, type_name: T::TYPE, node });
        self
    }
}
