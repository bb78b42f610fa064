//! A delayed event takes its id from the moment it is accepted: no other event with that id is stored while it waits.

use bytes::Bytes;
use millrace_model::{
    Appended, Delay, DueRow, EventId, Offset, Op, Partition, Space, Timestamp, TopicRow, keys,
};

/// Reads a row of [`Space::DueIds`]: returns when the delayed event that holds the id is due, and the key of its row in
/// [`Space::Due`]. The id is free if that row is gone, or if the row of the id cannot be read: storing an id twice is
/// better than confirming an event that is stored nowhere.
pub fn holder(row: &[u8]) -> Option<(Timestamp, Option<&str>)> {
    let text = std::str::from_utf8(row).ok()?;
    // A key of elapsed time ([`keys::DUE_AFTER`]) is followed by the wall time that the publisher was told.
    if let Some((key, due)) = text.split_once(' ') {
        return Some((Timestamp(due.parse().ok()?), Some(key)));
    }
    if text.contains('/') {
        return Some((keys::due_time(text)?, Some(text)));
    }
    // Older versions wrote the due time without the key of the row.
    Some((Timestamp(text.parse().ok()?), None))
}

/// Returns the writes for a delayed event whose id is free. `incarnation` is the incarnation that the topic has inside
/// the commit. An event for a topic that does not exist gets the incarnation 0 and is removed when it is due.
pub fn delay(delay: &Delay, incarnation: Option<u64>) -> Vec<Op> {
    let incarnation = incarnation.unwrap_or_default();
    let mut ops = Vec::with_capacity(2);
    if delay.dedupe_window_ms > 0 {
        let key = keys::due_id(&delay.topic, incarnation, &delay.id);
        let value = match delay.key.starts_with(keys::DUE_AFTER) {
            true => Bytes::from(format!("{} {}", delay.key, delay.due.0)),
            false => Bytes::copy_from_slice(delay.key.as_bytes()),
        };
        ops.push(Op::Put { space: Space::DueIds, key, value });
    }
    let row = DueRow { incarnation, ..(*delay.row).clone() };
    ops.push(Op::Put { space: Space::Due, key: delay.key.clone(), value: row.encode() });
    ops
}

/// Returns the row to write instead of `new` over the existing row of a topic, with the existing incarnation: delayed
/// events wait for that. `None` when nothing needs to change, or when one of the rows cannot be read.
///
/// A process that makes a topic may not know that another process has made it before.
pub fn keep_incarnation(key: &str, standing: &[u8], new: &Bytes) -> Option<Bytes> {
    let incarnation = TopicRow::incarnation_of(standing)?;
    let row = TopicRow::decode(key, new).ok()?;
    (row.incarnation != incarnation).then(|| TopicRow { incarnation, ..row }.encode())
}

/// Returns the answer for a delayed event that waits, be it this one or the earlier one that holds its id.
pub fn waiting(id: &EventId, now: Timestamp, due: Timestamp, duplicate: bool) -> Appended {
    Appended {
        partition: Partition(0),
        offset: Offset::ZERO,
        ts: now,
        id: id.clone(),
        duplicate,
        due: Some(due),
    }
}
