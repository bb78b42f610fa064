//! Counts and sums over a query: a single walk that keeps no rows. Order, limit and offset have no effect here.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::StateError;
use super::query::Query;
use crate::typed::{Field, NumberField, OrderedField, Stateful, compare};

impl<T: Stateful> Query<T> {
    /// Returns how many rows match.
    pub fn count(&self) -> Result<u64, StateError> {
        let mut count = 0;
        self.select.visit(&mut |_| {
            count += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(count)
    }

    /// Returns whether any row matches.
    pub fn exists(&self) -> Result<bool, StateError> {
        let mut exists = false;
        self.select.visit(&mut |_| {
            exists = true;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(exists)
    }

    /// Returns the sum of a field: exact for whole numbers, zero if no row matches.
    pub fn sum<V: NumberField>(
        &self,
        field: impl FnOnce(T::Fields) -> Field<T, V>,
    ) -> Result<V::Sum, StateError> {
        let mut sum = V::Sum::default();
        self.each_value(field(T::fields()), |value| V::add(&mut sum, value))?;
        Ok(sum)
    }

    /// Returns the mean over the rows where the field is not null; `None` if there are none.
    pub fn avg<V: NumberField>(
        &self,
        field: impl FnOnce(T::Fields) -> Field<T, V>,
    ) -> Result<Option<f64>, StateError> {
        let (mut sum, mut count) = (0.0, 0u64);
        self.each_value(field(T::fields()), |value| {
            sum += value.as_f64().unwrap_or(0.0);
            count += 1;
        })?;
        Ok((count > 0).then(|| sum / count as f64))
    }

    /// Returns the least value that is not null.
    pub fn min<V: OrderedField + DeserializeOwned>(
        &self,
        field: impl FnOnce(T::Fields) -> Field<T, V>,
    ) -> Result<Option<V>, StateError> {
        self.extreme(field(T::fields()), Ordering::Less)
    }

    /// Returns the greatest value that is not null.
    pub fn max<V: OrderedField + DeserializeOwned>(
        &self,
        field: impl FnOnce(T::Fields) -> Field<T, V>,
    ) -> Result<Option<V>, StateError> {
        self.extreme(field(T::fields()), Ordering::Greater)
    }

    fn extreme<V: DeserializeOwned>(
        &self,
        field: Field<T, V>,
        wanted: Ordering,
    ) -> Result<Option<V>, StateError> {
        let mut best: Option<Value> = None;
        self.each_value(field, |value| {
            if best.as_ref().is_none_or(|best| compare(value, best) == Some(wanted)) {
                best = Some(value.clone());
            }
        })?;
        let undecodable = |error: serde_json::Error| StateError::Undecodable {
            type_name: T::TYPE,
            key: format!("the field `{}`", field.name()),
            schema: 0,
            reason: error.to_string(),
        };
        best.map(serde_json::from_value).transpose().map_err(undecodable)
    }

    /// Calls `each` with the values of a field that are neither null nor absent.
    fn each_value<V>(&self, field: Field<T, V>, mut each: impl FnMut(&Value)) -> Result<(), StateError> {
        self.select.visit(&mut |found| {
            if let Some(value) = found.fields.get(field.name()).filter(|value| !value.is_null()) {
                each(value);
            }
            Ok(ControlFlow::Continue(()))
        })
    }
}
