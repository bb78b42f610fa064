//! How far behind groups are in time: the age of the oldest event that they have not done.

use millrace_bus::GroupGauges;
use millrace_model::{Offset, Stream, Timestamp};
use millrace_store::{ReadLimit, Store, StoreError};

/// Events of one question, looked up one by one: groups beyond are shown without a time.
pub(crate) const LOOKUPS_MAX: usize = 256;
/// A single event, whatever its size. A few offsets more, because compaction may have removed some.
const ONE: ReadLimit = ReadLimit { events_max: 16, bytes_max: 1 };

/// The time of the first event at or behind an offset; `None` if there is none close behind.
pub(crate) fn ts_at(
    store: &dyn Store,
    stream: &Stream,
    offset: Offset,
) -> Result<Option<Timestamp>, StoreError> {
    Ok(store.read(stream, offset, ONE)?.events.first().map(|event| event.ts))
}

/// How long the oldest event that the group has not done has been stored: 0 without a lag, `None` if it could not be
/// found or the lookups are used up.
pub(crate) fn lag_ms(
    store: &dyn Store,
    group: &GroupGauges,
    now: Timestamp,
    lookups: &mut usize,
) -> Result<Option<u64>, StoreError> {
    if group.behind.is_empty() {
        return Ok(Some(0));
    }
    let mut oldest: Option<Timestamp> = None;
    for (partition, offset) in &group.behind {
        if *lookups >= LOOKUPS_MAX {
            return Ok(None);
        }
        *lookups += 1;
        let ts = ts_at(store, &group.topic.stream(*partition), *offset)?;
        oldest = oldest.into_iter().chain(ts).min();
    }
    Ok(oldest.map(|ts| now.0.saturating_sub(ts.0)))
}
