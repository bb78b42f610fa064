//! Reads the state that the engine needs before its first input; tables are read in pages.

use bytes::Bytes;
use millrace_bus::{DueBy, ForeignDelays, Snapshot};
use millrace_model::{Boot, Offset, Space, Timestamp, keys};
use millrace_store::{KeyRange, Store, StoreError, each_row};

pub(crate) fn snapshot(store: &dyn Store, boot: Option<Boot>) -> Result<Snapshot, StoreError> {
    let streams = store.streams()?;
    Ok(Snapshot {
        topics: table(store, Space::Topics)?,
        groups: table(store, Space::Groups)?,
        cursors: table(store, Space::Cursors)?,
        attempts: table(store, Space::Attempts)?,
        seed: rand::random(),
        first_due: first_due(store)?,
        elapsed: row(store, Space::Kv, keys::ELAPSED)?,
        ages: row(store, Space::Kv, keys::AGES)?,
        boot,
        newest: streams
            .iter()
            .filter(|bounds| bounds.next > Offset::FIRST && !bounds.stream.topic.is_system())
            .map(|bounds| bounds.last_ts)
            .max(),
        streams: streams.into_iter().map(|bounds| (bounds.stream, bounds.start, bounds.next)).collect(),
    })
}

fn table(store: &dyn Store, space: Space) -> Result<Vec<(String, Bytes)>, StoreError> {
    let mut rows = Vec::new();
    each_row(store, space, KeyRange::all(), |row| rows.push((row.key, row.value)))?;
    Ok(rows)
}

fn row(store: &dyn Store, space: Space, key: &str) -> Result<Option<Bytes>, StoreError> {
    let range = KeyRange { from: key.to_owned(), to: Some(format!("{key}\0")) };
    Ok(store.scan(space, &range, 1)?.into_iter().next().map(|row| row.value))
}

pub(crate) fn due_range(by: DueBy) -> KeyRange {
    let (from, to) = by.key_range();
    KeyRange { from: from.to_owned(), to: to.map(str::to_owned) }
}

/// Reads the news for the engine after another process has delayed events.
pub(crate) fn delayed(store: &dyn Store) -> Result<ForeignDelays, StoreError> {
    Ok(ForeignDelays { first_due: first_due(store)?, elapsed: row(store, Space::Kv, keys::ELAPSED)? })
}

/// The time of the first delayed event of each kind. A key without a valid time counts as due now: the engine then
/// reads its row.
fn first_due(store: &dyn Store) -> Result<Vec<(DueBy, Timestamp)>, StoreError> {
    let mut first = Vec::new();
    for by in DueBy::ALL {
        let found = store.scan_keys(Space::Due, &due_range(by), 1)?;
        first.extend(found.first().map(|key| (by, keys::due_time(key).unwrap_or_default())));
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use millrace_model::{Batch, Op};
    use millrace_store::MemoryStore;

    use super::*;

    #[test]
    fn the_first_delayed_event_of_each_kind_is_found() {
        let store = MemoryStore::default();
        assert_eq!(first_due(&store).unwrap(), []);
        let put = |key| Op::Put { space: Space::Due, key, value: Bytes::new() };
        let ops = vec![
            put(keys::due(Timestamp(77), 1, 2)),
            put(keys::due(Timestamp(78), 1, 2)),
            put(keys::due_after(Timestamp(5), 1, 2)),
        ];
        store.commit(&[Batch { ops, ..Batch::default() }]).unwrap();
        let found = first_due(&store).unwrap();
        assert_eq!(found, [(DueBy::Wall, Timestamp(77)), (DueBy::Elapsed, Timestamp(5))]);
        let ops = vec![put("garbage".to_owned())];
        store.commit(&[Batch { ops, ..Batch::default() }]).unwrap();
        assert_eq!(first_due(&store).unwrap()[0], (DueBy::Wall, Timestamp(77)));
    }
}
