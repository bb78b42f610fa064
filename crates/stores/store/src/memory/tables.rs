//! The small tables: an ordered map each, looked up by borrowed keys.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use millrace_model::{KeyRange, Row, Space};

#[derive(Clone, Default)]
pub(super) struct Tables(BTreeMap<Space, BTreeMap<String, Bytes>>);

impl Tables {
    pub(super) fn len(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    pub(super) fn get(&self, space: Space, key: &str) -> Option<&Bytes> {
        self.0.get(&space)?.get(key)
    }

    pub(super) fn put(&mut self, space: Space, key: &str, value: Bytes) {
        let table = self.0.entry(space).or_default();
        match table.get_mut(key) {
            Some(found) => *found = value,
            None => {
                table.insert(key.to_owned(), value);
            }
        }
    }

    pub(super) fn remove(&mut self, space: Space, key: &str) {
        if let Some(table) = self.0.get_mut(&space) {
            table.remove(key);
        }
    }

    pub(super) fn remove_range(&mut self, space: Space, range: &KeyRange) {
        let keys: Vec<String> = self.range(space, range).map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.remove(space, key));
    }

    pub(super) fn rows(&self, space: Space, range: &KeyRange, rows_max: usize) -> Vec<Row> {
        let found = self.range(space, range).take(rows_max);
        found.map(|(key, value)| Row { key: key.clone(), value: value.clone() }).collect()
    }

    fn range<'a>(
        &'a self,
        space: Space,
        range: &'a KeyRange,
    ) -> impl Iterator<Item = (&'a String, &'a Bytes)> {
        let from = (Bound::Included(range.from.as_str()), Bound::Unbounded);
        let table = self.0.get(&space).into_iter();
        table.flat_map(move |table| table.range::<str, _>(from)).take_while(|(key, _)| range.contains(key))
    }
}
