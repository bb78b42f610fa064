//! What the engine needs to know before its first input, read in pages.

use bytes::Bytes;
use millrace_bus::Snapshot;
use millrace_model::{Space, Timestamp};
use millrace_store::{KeyRange, Store, StoreError, each_row};

pub(crate) fn snapshot(store: &dyn Store) -> Result<Snapshot, StoreError> {
    Ok(Snapshot {
        topics: table(store, Space::Topics)?,
        groups: table(store, Space::Groups)?,
        cursors: table(store, Space::Cursors)?,
        tries: table(store, Space::Tries)?,
        seed: rand::random(),
        first_due: store.scan(Space::Due, &KeyRange::all(), 1)?.first().map(|row| due_at(&row.key)),
        streams: store
            .streams()?
            .into_iter()
            .map(|bounds| (bounds.stream, bounds.start, bounds.next))
            .collect(),
    })
}

fn table(store: &dyn Store, space: Space) -> Result<Vec<(String, Bytes)>, StoreError> {
    let mut rows = Vec::new();
    each_row(store, space, KeyRange::all(), |row| rows.push((row.key, row.value)))?;
    Ok(rows)
}

/// The time a delayed event's key begins with. A key that says nothing is due now: the engine then looks at its row.
fn due_at(key: &str) -> Timestamp {
    let time = key.split_once('/').and_then(|(time, _)| u64::from_str_radix(time, 16).ok());
    Timestamp(time.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_due_key_tells_its_time() {
        assert_eq!(due_at(&millrace_model::keys::due(Timestamp(77), 1, 2)), Timestamp(77));
        assert_eq!(due_at("garbage"), Timestamp(0));
    }
}
