//! Reads whole small tables, page by page.

use std::ops::ControlFlow;

use millrace_model::{KeyRange, Row, Space};

use crate::error::StoreError;
use crate::port::Store;

/// Rows read at once.
const PAGE_ROWS: usize = 1000;

/// Calls `row` with every row of the range in key order. Only a page of rows is in memory at a time.
pub fn each_row(
    store: &dyn Store,
    space: Space,
    range: KeyRange,
    mut row: impl FnMut(Row),
) -> Result<(), StoreError> {
    try_each_row(store, space, range, PAGE_ROWS, &mut |each| {
        row(each);
        Ok(ControlFlow::Continue(()))
    })
}

/// Calls `row` with the rows of the range in key order, until it breaks or fails. Reads pages of `page_rows` rows; only
/// a page is in memory at a time.
pub fn try_each_row<E: From<StoreError>>(
    store: &dyn Store,
    space: Space,
    mut range: KeyRange,
    page_rows: usize,
    row: &mut dyn FnMut(Row) -> Result<ControlFlow<()>, E>,
) -> Result<(), E> {
    loop {
        let page = store.scan(space, &range, page_rows)?;
        let is_last = page.len() < page_rows;
        if let Some(last) = page.last() {
            // The smallest key after `last`.
            range.from = format!("{}\0", last.key);
        }
        for found in page {
            if row(found)?.is_break() {
                return Ok(());
            }
        }
        if is_last {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use millrace_model::{Batch, Durability, Op, Timestamp};

    use super::*;
    use crate::MemoryStore;

    #[test]
    fn every_row_comes_once_and_in_order() {
        for rows in [0, 1, PAGE_ROWS - 1, PAGE_ROWS, PAGE_ROWS + 1, 2 * PAGE_ROWS, 2 * PAGE_ROWS + 7] {
            let store = MemoryStore::default();
            let key = |at: usize| format!("router/{at:06}");
            let put = |key| Op::Put { space: Space::Kv, key, value: "v".into() };
            let mut ops: Vec<Op> = (0..rows).map(key).map(put).collect();
            ops.extend(["a", "z"].map(str::to_owned).map(put));
            let (nonce, now, durability) = (1, Timestamp(1), Durability::Fsync);
            store.commit(&[Batch { nonce, now, durability, checks: Vec::new(), ops }]).unwrap();
            let mut found = Vec::new();
            each_row(&store, Space::Kv, KeyRange::prefix("router/"), |row| found.push(row.key)).unwrap();
            assert_eq!(found, (0..rows).map(key).collect::<Vec<_>>(), "{rows} rows");
        }
    }
}
