//! An event as a row of `events`: writes it with a checksum, and checks it when reading it back.

use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{
    Event, EventBody, EventId, Headers, JsonText, Lineage, Offset, Priority, Stream, Timestamp,
};
use rusqlite::types::{Null, ValueRef};
use rusqlite::{Connection, Row, Statement, params};

use crate::error::{Attempt, SqliteFault};

pub(crate) const INSERT: &str = "INSERT INTO events (seq, stream, offset, ts, id, brought, priority, key, headers, \
     root_event_id, chain_depth, causation, correlation, crc, payload) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";

pub(crate) const SELECT: &str = "SELECT seq, stream, offset, ts, id, brought, priority, key, headers, \
     root_event_id, chain_depth, causation, correlation, crc, payload \
     FROM events WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq";

/// All fields of a row except its checksum, borrowed.
pub(crate) struct RowFields<'a> {
    pub(crate) seq: u64,
    pub(crate) stream: i64,
    pub(crate) offset: u64,
    pub(crate) ts: u64,
    pub(crate) id: &'a EventId,
    pub(crate) brought: bool,
    pub(crate) body: &'a EventBody,
}

impl RowFields<'_> {
    /// Returns the checksum of all fields. Fields of variable length are hashed with their length, so that no two
    /// different rows have the same input.
    pub(crate) fn crc(&self, scratch: &mut Vec<u8>) -> u32 {
        let body = self.body;
        scratch.clear();
        scratch.extend_from_slice(&self.seq.to_le_bytes());
        scratch.extend_from_slice(&self.stream.to_le_bytes());
        scratch.extend_from_slice(&self.offset.to_le_bytes());
        scratch.extend_from_slice(&self.ts.to_le_bytes());
        scratch.push(u8::from(self.brought));
        scratch.extend_from_slice(&body.priority.0.to_le_bytes());
        scratch.extend_from_slice(&body.lineage.depth.to_le_bytes());
        push_id(scratch, Some(self.id));
        push_bytes(scratch, body.key.as_ref().map(|key| key.as_bytes()));
        push_bytes(scratch, body.headers.as_ref().map(|headers| headers.json().bytes().as_ref()));
        push_id(scratch, body.lineage.root.as_ref());
        push_id(scratch, body.lineage.causation.as_ref());
        push_id(scratch, body.lineage.correlation.as_ref());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(scratch);
        hasher.update(body.payload.bytes());
        hasher.finalize()
    }

    pub(crate) fn insert(&self, insert: &mut Statement<'_>, scratch: &mut Vec<u8>) -> rusqlite::Result<()> {
        let body = self.body;
        let crc = self.crc(scratch);
        insert.raw_bind_parameter(1, self.seq as i64)?;
        insert.raw_bind_parameter(2, self.stream)?;
        insert.raw_bind_parameter(3, self.offset as i64)?;
        insert.raw_bind_parameter(4, self.ts as i64)?;
        bind_id(insert, 5, Some(self.id))?;
        insert.raw_bind_parameter(6, self.brought)?;
        insert.raw_bind_parameter(7, body.priority.0)?;
        insert.raw_bind_parameter(8, body.key.as_deref())?;
        insert.raw_bind_parameter(9, body.headers.as_ref().map(|headers| headers.json().bytes().as_ref()))?;
        bind_id(insert, 10, body.lineage.root.as_ref())?;
        insert.raw_bind_parameter(11, body.lineage.depth)?;
        bind_id(insert, 12, body.lineage.causation.as_ref())?;
        bind_id(insert, 13, body.lineage.correlation.as_ref())?;
        insert.raw_bind_parameter(14, crc)?;
        insert.raw_bind_parameter(15, body.payload.bytes().as_ref())?;
        insert.raw_execute().map(drop)
    }
}

fn push_bytes(scratch: &mut Vec<u8>, bytes: Option<&[u8]>) {
    // The length plus one, so that an empty value differs from an absent one.
    scratch.extend_from_slice(&bytes.map_or(0, |bytes| bytes.len() as u32 + 1).to_le_bytes());
    scratch.extend_from_slice(bytes.unwrap_or_default());
}

fn push_id(scratch: &mut Vec<u8>, id: Option<&EventId>) {
    match id {
        None => scratch.push(0),
        Some(EventId::Text(text)) => {
            scratch.push(1);
            push_bytes(scratch, Some(text.as_bytes()));
        }
        Some(EventId::Uuid(bits)) => {
            scratch.push(2);
            scratch.extend_from_slice(&bits.to_be_bytes());
        }
    }
}

fn bind_id(insert: &mut Statement<'_>, at: usize, id: Option<&EventId>) -> rusqlite::Result<()> {
    match id {
        None => insert.raw_bind_parameter(at, Null),
        Some(EventId::Text(text)) => insert.raw_bind_parameter(at, text.as_ref()),
        Some(EventId::Uuid(bits)) => insert.raw_bind_parameter(at, bits.to_be_bytes().as_slice()),
    }
}

/// Reads an id column. The outer `None` means that its value cannot be an id.
pub(crate) fn read_id(value: ValueRef<'_>) -> Option<Option<EventId>> {
    match value {
        ValueRef::Null => Some(None),
        ValueRef::Text(text) => Some(Some(EventId::Text(std::str::from_utf8(text).ok()?.into()))),
        ValueRef::Blob(bytes) => Some(Some(EventId::Uuid(u128::from_be_bytes(bytes.try_into().ok()?)))),
        ValueRef::Integer(_) | ValueRef::Real(_) => None,
    }
}

/// The fields of a row whose checksum is right.
struct WholeRow {
    stream: i64,
    offset: u64,
    ts: u64,
    id: EventId,
    body: EventBody,
}

/// Reads a row of [`SELECT`]. `None` if its checksum is wrong.
fn read_whole(row: &Row<'_>, scratch: &mut Vec<u8>) -> Option<WholeRow> {
    let integer = |at: usize| row.get_ref(at).ok()?.as_i64().ok();
    let blob = |at: usize| row.get_ref(at).ok()?.as_blob_or_null().ok();
    let text = |at: usize| row.get_ref(at).ok()?.as_str_or_null().ok();
    let event_id = |at: usize| read_id(row.get_ref(at).ok()?);
    let id = event_id(4)??;
    let body = EventBody {
        priority: Priority(i32::try_from(integer(6)?).ok()?),
        key: text(7)?.map(Into::into),
        headers: blob(8)?.map(|bytes| Headers::from_stored(Bytes::copy_from_slice(bytes))),
        lineage: Lineage {
            root: event_id(9)?,
            depth: u32::try_from(integer(10)?).ok()?,
            causation: event_id(11)?,
            correlation: event_id(12)?,
        },
        payload: JsonText::from_stored(Bytes::copy_from_slice(blob(14)??)),
    };
    let fields = RowFields {
        seq: integer(0)? as u64,
        stream: integer(1)?,
        offset: integer(2)? as u64,
        ts: integer(3)? as u64,
        id: &id,
        brought: integer(5)? != 0,
        body: &body,
    };
    if integer(13)? != i64::from(fields.crc(scratch)) {
        return None;
    }
    let (stream, offset, ts) = (fields.stream, fields.offset, fields.ts);
    Some(WholeRow { stream, offset, ts, id, body })
}

/// Returns the event in a row of [`SELECT`], if it is the one expected there and its checksum is right.
pub(crate) fn read(
    row: &Row<'_>,
    stream: &Stream,
    id: i64,
    offset: u64,
    scratch: &mut Vec<u8>,
) -> Option<Event> {
    let found = read_whole(row, scratch).filter(|found| found.stream == id && found.offset == offset)?;
    let (offset, ts) = (Offset(offset), Timestamp(found.ts));
    Some(Event { stream: stream.clone(), offset, ts, id: found.id, body: Arc::new(found.body) })
}

/// Fails if a row from `first` to `last` is there and fails its checksum. For copies of a journal, in which no damaged
/// row may decide anything.
pub(crate) fn check(conn: &Connection, first: u64, last: u64) -> Attempt<()> {
    let mut scratch = Vec::new();
    let mut select = conn.prepare_cached(SELECT)?;
    let mut rows = select.query(params![first as i64, last as i64])?;
    while let Some(row) = rows.next()? {
        if read_whole(row, &mut scratch).is_none() {
            let seq = row.get::<_, i64>(0).unwrap_or_default();
            return Err(SqliteFault::DamagedRow("events", seq.to_string()));
        }
    }
    Ok(())
}
