//! Records: one document `{_id: number, r: bytes}` each, in the collection `journal`.

use std::time::Instant;

use bytes::Bytes;
use millrace_journal::{JournalReadLimit, Placed};
use mongodb::Cursor;
use mongodb::bson::raw::cstr;
use mongodb::bson::{RawDocument, RawDocumentBuf, doc};
use mongodb::options::ReadConcern;

use crate::binary::{append_bytes, bytes_of};
use crate::collections::{Collections, settled};
use crate::failure::{DUPLICATE_KEY, RequestError};

/// Numbers that one request deletes. Deleting takes longer than inserting, and must end before the deadline.
const DELETED_AT_ONCE: i64 = 5_000;

pub(crate) fn document_of(n: i64, record: &[u8]) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("_id"), n);
    append_bytes(&mut document, cstr!("r"), record);
    document
}

/// The unique index on `_id` decides: of all inserts of a number, one succeeds.
pub(crate) async fn place(
    collections: &Collections,
    document: RawDocumentBuf,
) -> Result<Placed, RequestError> {
    match collections.journal.insert_one(document).await.map_err(RequestError::from) {
        Ok(_) => Ok(Placed::Yes),
        Err(error) if error.code() == Some(DUPLICATE_KEY) => Ok(Placed::Taken),
        Err(error) => Err(error),
    }
}

pub(crate) async fn read(
    collections: &Collections,
    from: i64,
    limit: JournalReadLimit,
    has_elections: bool,
) -> Result<Vec<(u64, Bytes)>, RequestError> {
    let found = read_with(collections, from, limit, ReadConcern::majority()).await?;
    if found.is_empty() && has_elections {
        // Records that were found are settled, however old the answer is. That there are none must be certain.
        return read_with(collections, from, limit, settled(has_elections)).await;
    }
    Ok(found)
}

async fn read_with(
    collections: &Collections,
    from: i64,
    limit: JournalReadLimit,
    concern: ReadConcern,
) -> Result<Vec<(u64, Bytes)>, RequestError> {
    // For the engine, zero means no limit.
    let records_max = i64::try_from(limit.records_max).unwrap_or(i64::MAX).max(1);
    let find = collections.journal.find(doc! { "_id": { "$gte": from } });
    let find = find.sort(doc! { "_id": 1 }).limit(records_max).read_concern(concern);
    let started = Instant::now();
    let mut cursor: Cursor<RawDocumentBuf> = find.max_time(collections.engine_timeout).await?;
    let mut found: Vec<(u64, Bytes)> = Vec::new();
    let mut bytes = 0;
    while cursor.advance().await? {
        let (n, record) = record_of(cursor.current())?;
        bytes += record.len();
        let is_gap = found.last().is_some_and(|(last, _)| last + 1 != n);
        if is_gap || bytes > limit.bytes_max && !found.is_empty() {
            break;
        }
        found.push((n, Bytes::copy_from_slice(record)));
        // A slow network: some records now are better than none at the deadline.
        if started.elapsed() > collections.engine_timeout / 2 {
            break;
        }
    }
    Ok(found)
}

fn record_of(document: &RawDocument) -> Result<(u64, &[u8]), RequestError> {
    let strange = || {
        RequestError::refused(
            "the collection journal holds a document that is no record; something else writes to this database",
        )
    };
    let n = document.get_i64("_id").ok().and_then(|n| u64::try_from(n).ok()).ok_or_else(strange)?;
    Ok((n, bytes_of(document, "r").ok_or_else(strange)?))
}

/// Deletes from the lowest number on, for as long as the time of one request lasts. The rest is left for the next call.
pub(crate) async fn delete_below(collections: &Collections, n: i64) -> Result<(), RequestError> {
    let started = Instant::now();
    let journal = &collections.journal;
    while started.elapsed() < collections.engine_timeout / 2 {
        let lowest = journal
            .find_one(doc! { "_id": { "$lt": n } })
            .sort(doc! { "_id": 1 })
            .projection(doc! { "_id": 1 });
        let Some(lowest) = lowest.max_time(collections.engine_timeout).await? else {
            return Ok(());
        };
        let lowest = lowest.get_i64("_id").map_err(|_| {
            RequestError::refused("the collection journal holds a document whose _id is no record's number")
        })?;
        let end = n.min(lowest.saturating_add(DELETED_AT_ONCE));
        journal.delete_many(doc! { "_id": { "$lt": end } }).await?;
    }
    Ok(())
}
