//! The body of a record: changes, each a byte that says which, and its fields.

use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{
    EventBody, EventId, Headers, JsonText, Lineage, Offset, PRIORITY_DEFAULT, Partition, Priority, Stream,
    Timestamp, TopicKey,
};
use millrace_store::{RecordedChange, RecordedEvent};

use super::cursor::{Cursor, Malformed, write_bytes, write_varint};
use super::spaces::{number_of, space_of};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const REMOVE: u8 = 3;
const DROP: u8 = 4;
const APPEND: u8 = 5;
const START: u8 = 6;

const IS_BROUGHT: u8 = 1;
const ID_IS_TEXT: u8 = 2;
const HAS_KEY: u8 = 4;
const HAS_HEADERS: u8 = 8;
const HAS_LINEAGE: u8 = 16;
const HAS_PRIORITY: u8 = 32;

const ID_NONE: u8 = 0;
const ID_UUID: u8 = 1;
const ID_TEXT: u8 = 2;

pub(super) fn encode(changes: &[RecordedChange]) -> Vec<u8> {
    let mut out = Vec::new();
    for change in changes {
        write_change(&mut out, change);
    }
    out
}

pub(super) fn decode(body: &Bytes) -> Result<Vec<RecordedChange>, Malformed> {
    let mut cursor = Cursor::new(body);
    let mut changes = Vec::new();
    while !cursor.is_at_end() {
        changes.push(read_change(&mut cursor)?);
    }
    Ok(changes)
}

fn write_change(out: &mut Vec<u8>, change: &RecordedChange) {
    match change {
        RecordedChange::Put { space, key, value } => {
            out.extend_from_slice(&[PUT, number_of(*space)]);
            write_bytes(out, key.as_bytes());
            write_bytes(out, value);
        }
        RecordedChange::Delete { space, key } => {
            out.extend_from_slice(&[DELETE, number_of(*space)]);
            write_bytes(out, key.as_bytes());
        }
        RecordedChange::Remove { stream, number, offsets, compacted_to } => {
            out.push(REMOVE);
            write_stream(out, stream, *number);
            write_varint(out, compacted_to.0);
            write_varint(out, offsets.len() as u64);
            let mut last = 0;
            for offset in offsets {
                write_varint(out, offset.0.wrapping_sub(last));
                last = offset.0;
            }
        }
        RecordedChange::Drop { topic, at } => {
            out.push(DROP);
            write_bytes(out, topic.as_str().as_bytes());
            write_varint(out, at.0);
        }
        RecordedChange::Append { stream, number, events } => {
            out.push(APPEND);
            write_stream(out, stream, *number);
            write_varint(out, events.first().map_or(0, |event| event.offset.0));
            write_varint(out, events.len() as u64);
            let mut last = 0;
            for event in events {
                write_varint(out, event.ts.0.wrapping_sub(last));
                last = event.ts.0;
                write_event(out, event);
            }
        }
        RecordedChange::Start { stream, number, start } => {
            out.push(START);
            write_stream(out, stream, *number);
            write_varint(out, start.0);
        }
    }
}

fn read_change(cursor: &mut Cursor<'_>) -> Result<RecordedChange, Malformed> {
    Ok(match cursor.byte()? {
        PUT => RecordedChange::Put {
            space: space_of(cursor.byte()?)?,
            key: cursor.text()?,
            value: cursor.bytes()?,
        },
        DELETE => RecordedChange::Delete { space: space_of(cursor.byte()?)?, key: cursor.text()? },
        REMOVE => {
            let (stream, number) = read_stream(cursor)?;
            let compacted_to = Offset(cursor.varint()?);
            let count = read_count(cursor)?;
            let mut last = 0u64;
            let offsets = (0..count).map(|_| {
                last = last.wrapping_add(cursor.varint()?);
                Ok(Offset(last))
            });
            let offsets = offsets.collect::<Result<_, Malformed>>()?;
            RecordedChange::Remove { stream, number, offsets, compacted_to }
        }
        DROP => RecordedChange::Drop { topic: read_topic(cursor)?, at: Timestamp(cursor.varint()?) },
        APPEND => {
            let (stream, number) = read_stream(cursor)?;
            let first = cursor.varint()?;
            let count = read_count(cursor)?;
            let mut last = 0u64;
            let events = (0..count as u64).map(|at| {
                last = last.wrapping_add(cursor.varint()?);
                let offset = first.checked_add(at).ok_or(Malformed("an offset in its body"))?;
                read_event(cursor, Offset(offset), Timestamp(last))
            });
            let events = events.collect::<Result<_, Malformed>>()?;
            RecordedChange::Append { stream, number, events }
        }
        START => {
            let (stream, number) = read_stream(cursor)?;
            RecordedChange::Start { stream, number, start: Offset(cursor.varint()?) }
        }
        _ => return Err(Malformed("the kind of a change in its body")),
    })
}

/// Reads how many things follow. Each takes a byte at least, so a forged count cannot make a reader allocate much.
fn read_count(cursor: &mut Cursor<'_>) -> Result<usize, Malformed> {
    let count = cursor.varint()?;
    usize::try_from(count)
        .ok()
        .filter(|count| *count <= cursor.left())
        .ok_or(Malformed("a count in its body"))
}

fn write_stream(out: &mut Vec<u8>, stream: &Stream, number: u64) {
    write_bytes(out, stream.topic.as_str().as_bytes());
    write_varint(out, stream.partition.0.into());
    write_varint(out, number);
}

fn read_stream(cursor: &mut Cursor<'_>) -> Result<(Stream, u64), Malformed> {
    let topic = read_topic(cursor)?;
    let partition = u32::try_from(cursor.varint()?).map_err(|_| Malformed("a partition in its body"))?;
    let number = cursor.varint()?;
    // Adapters hold the number in a signed column.
    if number == 0 || i64::try_from(number).is_err() {
        return Err(Malformed("the number of a stream in its body"));
    }
    Ok((topic.stream(Partition(partition)), number))
}

fn read_topic(cursor: &mut Cursor<'_>) -> Result<TopicKey, Malformed> {
    TopicKey::parse(&cursor.text()?).map_err(|_| Malformed("a topic in its body"))
}

fn write_event(out: &mut Vec<u8>, event: &RecordedEvent) {
    let EventBody { key, headers, priority, lineage, payload } = &*event.body;
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    out.push(
        flag(event.is_brought, IS_BROUGHT)
            | flag(matches!(event.id, EventId::Text(_)), ID_IS_TEXT)
            | flag(key.is_some(), HAS_KEY)
            | flag(headers.is_some(), HAS_HEADERS)
            | flag(*lineage != Lineage::default(), HAS_LINEAGE)
            | flag(*priority != PRIORITY_DEFAULT, HAS_PRIORITY),
    );
    match &event.id {
        EventId::Uuid(bits) => out.extend_from_slice(&bits.to_be_bytes()),
        EventId::Text(text) => write_bytes(out, text.as_bytes()),
    }
    if *priority != PRIORITY_DEFAULT {
        out.extend_from_slice(&priority.0.to_le_bytes());
    }
    if let Some(key) = key {
        write_bytes(out, key.as_bytes());
    }
    if let Some(headers) = headers {
        write_bytes(out, headers.json().bytes());
    }
    if *lineage != Lineage::default() {
        let Lineage { root, depth, causation, correlation } = lineage;
        write_varint(out, (*depth).into());
        [root, causation, correlation].into_iter().for_each(|id| write_id(out, id.as_ref()));
    }
    write_bytes(out, payload.bytes());
}

fn read_event(cursor: &mut Cursor<'_>, offset: Offset, ts: Timestamp) -> Result<RecordedEvent, Malformed> {
    let flags = cursor.byte()?;
    let has = |flag: u8| flags & flag != 0;
    let id = if has(ID_IS_TEXT) { read_text_id(cursor)? } else { read_uuid(cursor)? };
    let priority = match has(HAS_PRIORITY) {
        true => {
            let bytes = cursor.take(4)?;
            Priority(bytes.iter().rev().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte)) as i32)
        }
        false => PRIORITY_DEFAULT,
    };
    let key = if has(HAS_KEY) { Some(cursor.text()?.into()) } else { None };
    let headers = if has(HAS_HEADERS) { Some(Headers::from_stored(cursor.bytes()?)) } else { None };
    let lineage = match has(HAS_LINEAGE) {
        true => {
            let depth = u32::try_from(cursor.varint()?).map_err(|_| Malformed("a depth in its body"))?;
            let (root, causation) = (read_id(cursor)?, read_id(cursor)?);
            Lineage { root, depth, causation, correlation: read_id(cursor)? }
        }
        false => Lineage::default(),
    };
    let payload = JsonText::from_stored(cursor.bytes()?);
    let body = Arc::new(EventBody { key, headers, priority, lineage, payload });
    Ok(RecordedEvent { offset, ts, id, is_brought: has(IS_BROUGHT), body })
}

fn write_id(out: &mut Vec<u8>, id: Option<&EventId>) {
    match id {
        None => out.push(ID_NONE),
        Some(EventId::Uuid(bits)) => {
            out.push(ID_UUID);
            out.extend_from_slice(&bits.to_be_bytes());
        }
        Some(EventId::Text(text)) => {
            out.push(ID_TEXT);
            write_bytes(out, text.as_bytes());
        }
    }
}

fn read_id(cursor: &mut Cursor<'_>) -> Result<Option<EventId>, Malformed> {
    match cursor.byte()? {
        ID_NONE => Ok(None),
        ID_UUID => read_uuid(cursor).map(Some),
        ID_TEXT => read_text_id(cursor).map(Some),
        _ => Err(Malformed("the kind of an id in its body")),
    }
}

fn read_uuid(cursor: &mut Cursor<'_>) -> Result<EventId, Malformed> {
    let bytes = cursor.take(16)?;
    Ok(EventId::Uuid(bytes.iter().fold(0u128, |sum, byte| sum << 8 | u128::from(*byte))))
}

fn read_text_id(cursor: &mut Cursor<'_>) -> Result<EventId, Malformed> {
    EventId::parse(&cursor.text()?).map_err(|_| Malformed("an id in its body"))
}
