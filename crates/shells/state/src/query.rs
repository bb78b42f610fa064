//! Queries: which rows of a type, in which order, how many.

use std::marker::PhantomData;
use std::ops::ControlFlow;

use millrace_model::{StateCommit, keys};

use super::State;
use super::ends::EndFilter;
use super::error::StateError;
use super::narrow::Narrow;
use super::scan::{self, Found};
use super::stored::Stored;
use super::top::Top;
use crate::typed::{Entity, Filter, Node, Order, Stateful};

/// The most rows that a query without a limit returns. More are an error, never silently cut off.
pub const ROWS_MAX: usize = 10_000;

/// A query of entities or relations. The key is the only index: a filter reads every row of the type, or of the part
/// that [`Query::key_prefix`], [`Query::left`] or [`Query::between`] selects. A filter for one value of a key
/// (`f.user.eq("u1")`) also selects a part, if the key is text or a whole number.
///
/// ```
/// use std::sync::Arc;
///
/// use millrace_model::{Identity, Namespace, StateKind};
/// use millrace_state::{Field, Schema, State, StateError, Stateful};
/// use millrace_store::MemoryStore;
/// use serde::{Deserialize, Serialize};
///
/// // What #[derive(Entity)] writes for you.
/// #[derive(Serialize, Deserialize)]
/// struct Payment { id: String, cents: u64 }
///
/// #[derive(Clone, Copy)]
/// struct PaymentFields { cents: Field<Payment, u64> }
///
/// impl Default for PaymentFields {
///     fn default() -> Self { PaymentFields { cents: Field::new("cents") } }
/// }
///
/// impl Stateful for Payment {
///     const KIND: StateKind = StateKind::Entity;
///     const TYPE: &'static str = "Payment";
///     type Fields = PaymentFields;
///     fn identity(&self) -> Identity {
///         Identity::Entity { type_name: Self::TYPE.into(), key: self.id.clone() }
///     }
///     fn schema() -> Schema { Schema::new(Self::TYPE, &[("id", "String as key"), ("cents", "u64")]) }
/// }
///
/// // A session hands this out.
/// let state = State::new(Arc::new(MemoryStore::default()), Namespace::default());
/// let large = state.query::<Payment>().filter(|f| f.cents.ge(10_000)).order_by(|f| f.cents.desc());
/// assert_eq!(large.clone().limit(10).collect()?.len(), 0);
/// assert_eq!(large.sum(|f| f.cents)?, 0);
/// # Ok::<(), StateError>(())
/// ```
#[derive(Debug)]
#[must_use = "a query does nothing until it is collected or counted"]
pub struct Query<T: Stateful> {
    pub(crate) select: Select,
    owner: PhantomData<fn() -> T>,
}

/// A query without its type.
#[derive(Clone, Debug)]
pub(crate) struct Select {
    pub(crate) state: State,
    pub(crate) filters: Vec<Node>,
    orders: Vec<(&'static str, bool)>,
    limit: Option<usize>,
    offset: usize,
    pub(crate) as_of: Option<StateCommit>,
    pub(crate) prefix: String,
    /// The escaped right key that relations must have.
    pub(crate) right: Option<String>,
    pub(crate) ends: Vec<EndFilter>,
    /// The value of [`Stateful::KEY_FIELDS`].
    pub(crate) key_fields: &'static [&'static str],
}

impl<T: Stateful> Query<T> {
    pub(crate) fn new(state: State) -> Query<T> {
        let prefix = format!("{}/", keys::state_type(state.namespace(), T::KIND, T::TYPE));
        let select = Select {
            state,
            filters: Vec::new(),
            orders: Vec::new(),
            limit: None,
            offset: 0,
            as_of: None,
            prefix,
            right: None,
            ends: Vec::new(),
            key_fields: T::KEY_FIELDS,
        };
        Query { select, owner: PhantomData }
    }

    /// Selects only rows that match; several filters must all hold.
    pub fn filter(mut self, filter: impl FnOnce(T::Fields) -> Filter<T>) -> Query<T> {
        self.select.filters.push(filter(T::fields()).into_node());
        self
    }

    /// Sorts by this field; a further call sorts rows that are equal in the fields before. Without any, rows come in
    /// the order of their keys. Null comes first.
    pub fn order_by(mut self, order: impl FnOnce(T::Fields) -> Order<T>) -> Query<T> {
        let Order { field, descending, .. } = order(T::fields());
        self.select.orders.push((field, descending));
        self
    }

    pub fn limit(mut self, rows: usize) -> Query<T> {
        self.select.limit = Some(rows);
        self
    }

    pub fn offset(mut self, rows: usize) -> Query<T> {
        self.select.offset = rows;
        self
    }

    /// Reads the state right after the commit. A commit that does not exist yet means now.
    pub fn as_of(mut self, commit: StateCommit) -> Query<T> {
        self.select.as_of = Some(commit);
        self
    }

    /// Returns the rows. More than [`ROWS_MAX`] of them without a limit are an error.
    pub fn collect(&self) -> Result<Vec<Stored<T>>, StateError> {
        self.select.rows()?.into_iter().map(Stored::decode).collect()
    }

    pub fn first(&self) -> Result<Option<Stored<T>>, StateError> {
        let mut one = self.select.clone();
        one.limit = Some(one.limit.unwrap_or(1).min(1));
        one.rows()?.pop().map(Stored::decode).transpose()
    }

    /// Returns all matching rows, page by page, in an order that does not change.
    pub fn pages(&self, rows: usize) -> Pages<T> {
        Pages { select: self.select.clone(), rows: rows.max(1), after: None, done: false, owner: PhantomData }
    }
}

impl Select {
    fn matches(&self, found: &Found) -> Result<bool, StateError> {
        let mut matches = self.filters.iter().all(|filter| filter.matches(&found.fields));
        for end in &self.ends {
            matches = matches && end.matches(&self.state, &found.key, self.as_of)?;
        }
        Ok(matches)
    }

    fn check(&self) -> Result<(), StateError> {
        let ends = self.ends.iter().map(|end| &end.node);
        let problem = self.filters.iter().chain(ends).find_map(Node::problem);
        let bad = |(field, reason): (_, &str)| StateError::BadFilter { field, reason: reason.to_owned() };
        problem.map_or(Ok(()), |problem| Err(bad(problem)))
    }

    /// Visits every row that matches, regardless of order, limit and offset.
    pub(crate) fn visit(
        &self,
        each: &mut dyn FnMut(Found) -> Result<ControlFlow<()>, StateError>,
    ) -> Result<(), StateError> {
        self.visit_after(None, each)
    }

    fn visit_after(
        &self,
        after: Option<&str>,
        each: &mut dyn FnMut(Found) -> Result<ControlFlow<()>, StateError>,
    ) -> Result<(), StateError> {
        self.check()?;
        let narrow = Narrow::of(self);
        let (prefix, right) = (narrow.prefix.as_str(), narrow.right.as_deref());
        let walk = scan::StateWalk { prefix, right, after, as_of: self.as_of };
        walk.visit(self.state.store(), &mut |found| {
            if self.matches(&found)? { each(found) } else { Ok(ControlFlow::Continue(())) }
        })
    }

    fn rows(&self) -> Result<Vec<Found>, StateError> {
        let rows_max = self.offset.saturating_add(self.limit.unwrap_or(ROWS_MAX));
        // A row more than may be returned tells too many from just enough.
        let probe = rows_max.saturating_add(usize::from(self.limit.is_none()));
        let found = if self.orders.is_empty() && self.as_of.is_none() {
            self.first_rows(None, probe)?
        } else {
            let mut top = Top::new(self.orders.clone(), probe);
            self.visit(&mut |found| {
                top.push(found);
                Ok(ControlFlow::Continue(()))
            })?;
            top.into_rows()
        };
        if self.limit.is_none() && found.len() > rows_max {
            return Err(StateError::TooManyRows { limit: ROWS_MAX });
        }
        let given: Vec<Found> = found.into_iter().skip(self.offset).collect();
        self.note_reads(&given);
        Ok(given)
    }

    /// Remembers the rows that the caller gets as read, but not rows that were only filtered out, nor rows of the past.
    fn note_reads(&self, given: &[Found]) {
        if self.as_of.is_none() {
            self.state.note_reads(given);
        }
    }

    /// Returns rows in the order of the table: the walk ends with the last row wanted.
    fn first_rows(&self, after: Option<&str>, rows_max: usize) -> Result<Vec<Found>, StateError> {
        let mut found = Vec::new();
        if rows_max > 0 {
            self.visit_after(after, &mut |row| {
                found.push(row);
                let is_full = found.len() >= rows_max;
                Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        }
        Ok(found)
    }
}

impl<T: Entity> Query<T> {
    /// Selects only entities whose key begins with this text; reads no other rows.
    pub fn key_prefix(mut self, text: &str) -> Query<T> {
        let state_type = keys::state_type(self.select.state.namespace(), T::KIND, T::TYPE);
        self.select.prefix = format!("{state_type}/{}", keys::escaped(text));
        self
    }
}

/// An iterator over pages of rows.
#[derive(Debug)]
pub struct Pages<T: Stateful> {
    select: Select,
    rows: usize,
    /// The key of the last row returned.
    after: Option<String>,
    done: bool,
    owner: PhantomData<fn() -> T>,
}

impl<T: Stateful> Pages<T> {
    fn read(&mut self) -> Result<Vec<Stored<T>>, StateError> {
        let Select { orders, limit, offset, .. } = &self.select;
        if !orders.is_empty() || limit.is_some() || *offset > 0 {
            return Err(StateError::PagesHaveNoOrder);
        }
        let page = self.select.first_rows(self.after.as_deref(), self.rows)?;
        self.done = page.len() < self.rows;
        self.after = page.last().map(|found| found.key.clone());
        self.select.note_reads(&page);
        page.into_iter().map(Stored::decode).collect()
    }
}

impl<T: Stateful> Iterator for Pages<T> {
    type Item = Result<Vec<Stored<T>>, StateError>;

    /// Returns the next page. The iterator ends with the first error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        match self.read() {
            Ok(rows) if rows.is_empty() => None,
            page => {
                self.done |= page.is_err();
                Some(page)
            }
        }
    }
}

// Not derived: the derive would require `T: Clone`.
impl<T: Stateful> Clone for Query<T> {
    fn clone(&self) -> Self {
        Query { select: self.select.clone(), owner: PhantomData }
    }
}
