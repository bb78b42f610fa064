//! Queries of relations by what they connect: the keys of their ends, and the entities there.

use millrace_model::{StateKind, keys};

use super::State;
use super::error::StateError;
use super::query::Query;
use super::scan;
use crate::typed::{Filter, Key, Node, Relation, Stateful};

/// An end of a relation. The number is the position of its key in the key of the relation's row, see
/// [`keys::identity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Left = 3,
    Right = 4,
}

impl End {
    /// Returns the escaped key of this end, from the key of the relation's row.
    pub(crate) fn of(self, row_key: &str) -> Option<&str> {
        row_key.split('/').nth(self as usize)
    }
}

/// A condition on the entity at an end.
#[derive(Clone, Debug)]
pub(crate) struct EndFilter {
    end: End,
    type_name: &'static str,
    pub(crate) node: Node,
}

impl EndFilter {
    /// Returns whether the entity at the end matches. Costs a read. An end without an entity matches nothing, not even
    /// a filter for null.
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
    /// Selects only relations whose left end is this entity; reads no other rows.
    pub fn left(mut self, key: impl Key) -> Query<R> {
        let state_type = keys::state_type(self.select.state.namespace(), R::KIND, R::TYPE);
        self.select.prefix = format!("{state_type}/{}/", keys::escaped(&key.into_key()));
        self
    }

    /// Selects only relations whose right end is this entity. Rows are sorted by their left end, so this scans all keys
    /// of the type, or of the part that [`Query::left`] selects, but reads only the matching rows.
    pub fn right(mut self, key: impl Key) -> Query<R> {
        self.select.right = Some(keys::escaped(&key.into_key()));
        self
    }

    /// Selects only relations between these two entities; reads no other rows.
    pub fn between(mut self, left: impl Key, right: impl Key) -> Query<R> {
        self = self.left(left);
        self.select.prefix = format!("{}{}/", self.select.prefix, keys::escaped(&right.into_key()));
        self
    }

    /// Selects only relations whose left entity matches, as of the same commit. Costs a further read per relation. An
    /// entity that does not exist matches nothing.
    pub fn left_where(
        self,
        filter: impl FnOnce(<R::Left as Stateful>::Fields) -> Filter<R::Left>,
    ) -> Query<R> {
        self.end_where(End::Left, filter)
    }

    /// Selects only relations whose right entity matches, as of the same commit. Costs a further read per relation. An
    /// entity that does not exist matches nothing.
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
