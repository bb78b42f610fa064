//! Reads whole small tables, page by page.

use millrace_model::{KeyRange, Row, Space};

use crate::error::StoreError;
use crate::port::Store;

/// Rows read at once.
const PAGE_ROWS: usize = 1000;

/// Calls `row` with every row of the range in key order. Only a page of rows is in memory at a time.
pub fn each_row(
    store: &dyn Store,
    space: Space,
    mut range: KeyRange,
    mut row: impl FnMut(Row),
) -> Result<(), StoreError> {
    loop {
        let page = store.scan(space, &range, PAGE_ROWS)?;
        let is_last = page.len() < PAGE_ROWS;
        if let Some(last) = page.last() {
            // The smallest key after `last`.
            range.from = format!("{}\0", last.key);
        }
        page.into_iter().for_each(&mut row);
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
