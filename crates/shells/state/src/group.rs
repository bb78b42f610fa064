//! Counts and sums by the values of a field: a single walk that keeps an entry per value.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::StateError;
use super::query::Query;
use super::scan::Found;
use crate::typed::{Field, NumberField, Stateful, compare};

/// How many different values of the field a grouping may find. More are an error, never silently cut off.
pub const GROUPS_MAX: usize = 10_000;

/// A query whose rows are grouped by the value of a field.
#[derive(Debug)]
#[must_use = "a grouping does nothing until it is counted or summed"]
pub struct Grouped<T: Stateful, V> {
    query: Query<T>,
    field: Field<T, V>,
}

impl<T: Stateful> Query<T> {
    /// Groups rows with the same value of a field. Order, limit and offset have no effect here.
    ///
    /// `session.query::<Payment>().group_by(|f| f.status).sum(|f| f.cents)?` has one pair per status.
    pub fn group_by<V>(&self, field: impl FnOnce(T::Fields) -> Field<T, V>) -> Grouped<T, V> {
        Grouped { query: self.clone(), field: field(T::fields()) }
    }
}

impl<T: Stateful, V: DeserializeOwned> Grouped<T, V> {
    /// Returns how many rows have each value, the least value first. Null is a value.
    pub fn count(&self) -> Result<Vec<(V, u64)>, StateError> {
        self.fold(|count: &mut u64, _| *count += 1)
    }

    /// Returns the sum of another field over the rows of each value: exact for whole numbers, null adds nothing.
    pub fn sum<N: NumberField>(
        &self,
        field: impl FnOnce(T::Fields) -> Field<T, N>,
    ) -> Result<Vec<(V, N::Sum)>, StateError> {
        let field = field(T::fields());
        self.fold(|sum: &mut N::Sum, found| {
            if let Some(value) = found.fields.get(field.name()).filter(|value| !value.is_null()) {
                N::add(sum, value);
            }
        })
    }

    fn fold<A: Default>(&self, mut add: impl FnMut(&mut A, &Found)) -> Result<Vec<(V, A)>, StateError> {
        // Groups by the JSON text of the value: equal values of a type have equal texts.
        let mut groups: BTreeMap<String, (Value, A)> = BTreeMap::new();
        self.query.select.visit(&mut |found| {
            let value = found.fields.get(self.field.name()).unwrap_or(&Value::Null);
            let text = value.to_string();
            if groups.len() == GROUPS_MAX && !groups.contains_key(&text) {
                return Err(StateError::TooManyGroups { field: self.field.name(), limit: GROUPS_MAX });
            }
            let (_, sum) = groups.entry(text).or_insert_with(|| (value.clone(), A::default()));
            add(sum, &found);
            Ok(ControlFlow::Continue(()))
        })?;
        let mut groups: Vec<(Value, A)> = groups.into_values().collect();
        groups.sort_by(|(left, _), (right, _)| compare(left, right).unwrap_or(Ordering::Equal));
        groups.into_iter().map(|(value, sum)| Ok((self.decode(value)?, sum))).collect()
    }

    fn decode(&self, value: Value) -> Result<V, StateError> {
        serde_json::from_value(value).map_err(|error| StateError::Undecodable {
            type_name: T::TYPE,
            key: format!("the field `{}`", self.field.name()),
            schema: 0,
            reason: error.to_string(),
        })
    }
}
