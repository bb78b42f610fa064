//! Reading records: waves of gets, each twice as wide as the one before, until a record is missing.
//!
//! An idle journal costs one get that finds nothing; a server that is far behind has 16 gets under way. A listing costs as
//! much as writing an object, so there is one only if a record is missing where none was expected to be: then older
//! records may have been deleted, and the listing finds the first that is left.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use millrace_journal::{JournalError, JournalReadLimit};

use crate::bucket::Bucket;
use crate::keys::ObjectKeys;
use crate::request::RequestFailure;

const WAVE_MAX: usize = 16;

/// The number after the newest record that this handle has seen, where a missing record is nothing unusual. Only a hint:
/// a wrong one costs a listing, or leaves one out.
#[derive(Debug, Default)]
pub(crate) struct ExpectedEnd(AtomicU64);

impl ExpectedEnd {
    pub(crate) fn after(&self, newest: u64) {
        self.at(newest.saturating_add(1));
    }

    fn at(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    fn is(&self, n: u64) -> bool {
        self.0.load(Ordering::Relaxed) == n
    }
}

pub(crate) async fn read_records(
    bucket: &Bucket,
    keys: &ObjectKeys,
    end: &ExpectedEnd,
    from: u64,
    limit: JournalReadLimit,
) -> Result<Vec<(u64, Bytes)>, JournalError> {
    let found = read_dense(bucket, keys, from, limit).await?;
    if let Some((newest, _)) = found.last() {
        end.after(*newest);
    }
    if !found.is_empty() || limit.records_max == 0 || end.is(from) {
        return Ok(found);
    }
    let Some(first) = first_left(bucket, keys, from).await? else {
        end.at(from);
        return Ok(Vec::new());
    };
    // Record `from` may have been placed since it was missing.
    let found = read_dense(bucket, keys, from, limit).await?;
    let found = if found.is_empty() { read_dense(bucket, keys, first, limit).await? } else { found };
    if let Some((newest, _)) = found.last() {
        end.after(*newest);
    }
    Ok(found)
}

/// Returns the number of the first record from `from` on, by a listing.
async fn first_left(bucket: &Bucket, keys: &ObjectKeys, from: u64) -> Result<Option<u64>, RequestFailure> {
    let (folder, before) = (keys.records(), keys.record(from.saturating_sub(1)));
    let mut listing = bucket.list_after(&folder, &before);
    while let Some(object) = listing.next().await? {
        if let Some(n) = keys.record_number(&object.location).filter(|n| from <= *n) {
            return Ok(Some(n));
        }
    }
    Ok(None)
}

/// Returns records from number `from` on until one is missing.
async fn read_dense(
    bucket: &Bucket,
    keys: &ObjectKeys,
    from: u64,
    limit: JournalReadLimit,
) -> Result<Vec<(u64, Bytes)>, JournalError> {
    let mut found = FoundRecords { from, limit, records: Vec::new(), bytes: 0, largest: 0 };
    let mut wave = 1;
    loop {
        let numbers = found.next_wave(wave);
        if numbers.is_empty() {
            return Ok(found.records);
        }
        let gets = numbers.iter().map(|n| {
            let key = keys.record(*n);
            async move { bucket.get(&key).await }
        });
        for (n, outcome) in numbers.iter().zip(join_all(gets).await) {
            match outcome {
                Ok(Some(object)) => {
                    if !found.push(*n, object.bytes) {
                        return Ok(found.records);
                    }
                }
                Ok(None) => return Ok(found.records),
                // The records before it are good; the next call meets the failure again.
                Err(_) if !found.records.is_empty() => return Ok(found.records),
                Err(failure) => return Err(failure.into()),
            }
        }
        wave = (wave * 2).min(WAVE_MAX);
    }
}

struct FoundRecords {
    from: u64,
    limit: JournalReadLimit,
    records: Vec<(u64, Bytes)>,
    bytes: usize,
    /// The length of the largest record.
    largest: usize,
}

impl FoundRecords {
    /// Returns the numbers to get next, at most `wave`: fewer if the limit would be passed by records as large as the
    /// largest one so far.
    fn next_wave(&self, wave: usize) -> Vec<u64> {
        let records_left = self.limit.records_max.saturating_sub(self.records.len());
        let bytes_left = self.limit.bytes_max.saturating_sub(self.bytes);
        let expected = match self.records.len() {
            0 => 1,
            _ => bytes_left / self.largest.max(1),
        };
        let count = wave.min(records_left).min(expected);
        let next = u64::try_from(self.records.len()).ok().and_then(|read| self.from.checked_add(read));
        next.map_or_else(Vec::new, |next| (next..=u64::MAX).take(count).collect())
    }

    /// Adds a record. Returns whether there was room for it; there is always room for the first one.
    fn push(&mut self, n: u64, record: Bytes) -> bool {
        let bytes = self.bytes.saturating_add(record.len());
        if bytes > self.limit.bytes_max && !self.records.is_empty() {
            return false;
        }
        self.bytes = bytes;
        self.largest = self.largest.max(record.len());
        self.records.push((n, record));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(records_max: usize, bytes_max: usize) -> FoundRecords {
        let limit = JournalReadLimit { records_max, bytes_max };
        FoundRecords { from: 5, limit, records: Vec::new(), bytes: 0, largest: 0 }
    }

    #[test]
    fn a_wave_is_as_wide_as_the_limit_allows() {
        let mut found = found(6, 100);
        assert_eq!(found.next_wave(1), [5]);
        assert!(found.push(5, Bytes::from_static(&[0; 10])));
        assert_eq!(found.next_wave(2), [6, 7]);
        assert_eq!(found.next_wave(16), [6, 7, 8, 9, 10], "six records are allowed");
        assert!(found.push(6, Bytes::from_static(&[0; 40])));
        assert_eq!(found.next_wave(16), [7], "another large one fits, two do not");
        assert!(!found.push(7, Bytes::from_static(&[0; 60])), "too large for what is left");
    }

    #[test]
    fn the_first_record_always_has_room_and_the_largest_number_is_the_last() {
        let mut found = found(10, 1);
        assert!(found.push(5, Bytes::from_static(&[0; 50])));
        assert!(found.next_wave(4).is_empty());
        let limit = JournalReadLimit { records_max: 10, bytes_max: 10 };
        let at_end = FoundRecords { from: u64::MAX, limit, records: Vec::new(), bytes: 0, largest: 0 };
        assert_eq!(at_end.next_wave(4), [u64::MAX]);
    }
}
