//! Relations together with the entities at their ends.

use millrace_model::StateCommit;

use super::State;
use super::error::StateError;
use super::query::{Query, Select};
use super::stored::Stored;
use crate::typed::{Relation, entity_identity};

/// A relation and the entities at its two ends, all of the same moment.
#[derive(Clone, Debug)]
pub struct Edge<R: Relation> {
    pub relation: Stored<R>,
    left: Option<Stored<R::Left>>,
    right: Option<Stored<R::Right>>,
}

impl<R: Relation> Edge<R> {
    /// Returns the entity at the left end. `None` if it does not exist: relations may name entities that do not.
    pub fn left(&self) -> Option<&Stored<R::Left>> {
        self.left.as_ref()
    }

    /// Returns the entity at the right end. `None` if it does not exist.
    pub fn right(&self) -> Option<&Stored<R::Right>> {
        self.right.as_ref()
    }
}

/// A query of relations that also loads the entities at their ends.
#[derive(Clone, Debug)]
#[must_use = "a query does nothing until it is collected"]
pub struct Edges<R: Relation> {
    query: Query<R>,
}

impl<R: Relation> Query<R> {
    /// Also loads the entities at both ends, as of the same commit.
    pub fn with_endpoints(self) -> Edges<R> {
        Edges { query: self }
    }
}

impl<R: Relation> Edges<R> {
    /// Returns the relations with their ends. Costs two reads per relation.
    pub fn collect(&self) -> Result<Vec<Edge<R>>, StateError> {
        let Select { state, as_of, .. } = &self.query.select;
        self.query.collect()?.into_iter().map(|relation| edge(state, *as_of, relation)).collect()
    }

    pub fn first(&self) -> Result<Option<Edge<R>>, StateError> {
        let Select { state, as_of, .. } = &self.query.select;
        self.query.first()?.map(|relation| edge(state, *as_of, relation)).transpose()
    }
}

fn edge<R: Relation>(
    state: &State,
    as_of: Option<StateCommit>,
    relation: Stored<R>,
) -> Result<Edge<R>, StateError> {
    let left = state.find(&entity_identity::<R::Left>(relation.left_key()), as_of)?;
    let right = state.find(&entity_identity::<R::Right>(relation.right_key()), as_of)?;
    Ok(Edge { relation, left, right })
}
