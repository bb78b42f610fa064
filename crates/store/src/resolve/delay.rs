//! A delayed event takes its id from the moment it is accepted: nothing else of that id is stored while it waits.

use bytes::Bytes;
use millrace_model::{Appended, Delay, EventId, Offset, Op, Partition, Space, Timestamp, keys};

/// Who holds an id, by a row of [`Space::DueIds`]: when it is due, and the key of its row in [`Space::Due`]. An id whose
/// event does not wait there any more is free, and so is one whose row cannot be read: storing an id twice is better than
/// confirming what is then stored nowhere.
pub fn holder(row: &[u8]) -> Option<(Timestamp, Option<&str>)> {
    let text = std::str::from_utf8(row).ok()?;
    if text.contains('/') {
        return Some((keys::due_time(text)?, Some(text)));
    }
    // As they were written before they named the row.
    Some((Timestamp(text.parse().ok()?), None))
}

/// The rows of a delayed event whose id is free.
pub fn delay(delay: &Delay) -> Vec<Op> {
    let mut ops = Vec::with_capacity(2);
    if delay.dedupe_window_ms > 0 {
        let key = keys::due_id(&delay.topic, delay.made, &delay.id);
        let value = Bytes::copy_from_slice(delay.key.as_bytes());
        ops.push(Op::Put { space: Space::DueIds, key, value });
    }
    ops.push(Op::Put { space: Space::Due, key: delay.key.clone(), value: delay.row.clone() });
    ops
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
