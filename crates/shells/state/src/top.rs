//! The first rows in some order, without keeping all rows.

use std::cmp::Ordering;

use serde_json::Value;

use super::scan::Found;
use crate::typed::compare;

/// Keeps the first `rows_max` of all rows that are pushed.
#[derive(Debug)]
pub(crate) struct Top {
    orders: Vec<(&'static str, bool)>,
    rows_max: usize,
    rows: Vec<Found>,
}

impl Top {
    /// `orders` are pairs of field and whether it is descending. Rows that are equal in all of them come in the order
    /// of their keys.
    pub(crate) fn new(orders: Vec<(&'static str, bool)>, rows_max: usize) -> Top {
        Top { orders, rows_max, rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, found: Found) {
        self.rows.push(found);
        // Sorting now and then costs less than keeping the order at every push, and holds at most twice as many rows.
        if self.rows.len() >= self.rows_max.saturating_mul(2).max(1024) {
            self.cut();
        }
    }

    pub(crate) fn into_rows(mut self) -> Vec<Found> {
        self.cut();
        self.rows
    }

    fn cut(&mut self) {
        let orders = &self.orders;
        self.rows.sort_by(|left, right| by(orders, left, right));
        self.rows.truncate(self.rows_max);
    }
}

fn by<'f>(orders: &[(&'static str, bool)], left: &'f Found, right: &'f Found) -> Ordering {
    for &(field, descending) in orders {
        let of = |found: &'f Found| found.fields.get(field).unwrap_or(&Value::Null);
        let ordering = compare(of(left), of(right)).unwrap_or(Ordering::Equal);
        let ordering = if descending { ordering.reverse() } else { ordering };
        if ordering.is_ne() {
            return ordering;
        }
    }
    left.key.cmp(&right.key)
}
