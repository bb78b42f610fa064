//! A delayed event takes its id from the moment it is accepted: nothing else of that id is stored while it waits.

use bytes::Bytes;
use millrace_model::{
    Appended, Delay, DueRow, EventId, Offset, Op, Partition, Space, Timestamp, TopicRow, keys,
};

/// Who holds an id, by a row of [`Space::DueIds`]: when it is due, and the key of its row in [`Space::Due`]. An id whose
/// event does not wait there any more is free, and so is one whose row cannot be read: storing an id twice is better than
/// confirming what is then stored nowhere.
pub fn holder(row: &[u8]) -> Option<(Timestamp, Option<&str>)> {
    let text = std::str::from_utf8(row).ok()?;
    // Where the key is not of wall time, the time that was answered stands behind it.
    if let Some((key, due)) = text.split_once(' ') {
        return Some((Timestamp(due.parse().ok()?), Some(key)));
    }
    if text.contains('/') {
        return Some((keys::due_time(text)?, Some(text)));
    }
    // As they were written before they named the row.
    Some((Timestamp(text.parse().ok()?), None))
}

/// The rows of a delayed event whose id is free. `made` is the incarnation of the topic that stands inside the commit; an event
/// for a topic that is not there is of none, and is removed when it is due.
pub fn delay(delay: &Delay, made: Option<u64>) -> Vec<Op> {
    let made = made.unwrap_or_default();
    let mut ops = Vec::with_capacity(2);
    if delay.dedupe_window_ms > 0 {
        let key = keys::due_id(&delay.topic, made, &delay.id);
        let value = match delay.key.starts_with(keys::DUE_AFTER) {
            true => Bytes::from(format!("{} {}", delay.key, delay.due.0)),
            false => Bytes::copy_from_slice(delay.key.as_bytes()),
        };
        ops.push(Op::Put { space: Space::DueIds, key, value });
    }
    let row = DueRow { made, ..(*delay.row).clone() };
    ops.push(Op::Put { space: Space::Due, key: delay.key.clone(), value: row.encode() });
    ops
}

/// What is written in the place of `new` over the row of a topic that stands: its incarnation stays, because delayed events
/// wait for it. `None` when that changes nothing, and when one of the rows cannot be read.
///
/// A process that makes a topic may not know that another one has made it before.
pub fn keep_incarnation(key: &str, standing: &[u8], new: &Bytes) -> Option<Bytes> {
    let made = TopicRow::made_of(standing)?;
    let row = TopicRow::decode(key, new).ok()?;
    (row.made != made).then(|| TopicRow { made, ..row }.encode())
}

/// The answer for an event that waits, whoever brought its id.
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
