//! Short functions that build batches, for this suite and for adapters' own tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use millrace_model::{
    Append, Batch, Check, Claim, ClaimRow, ClaimState, Ending, EventBody, EventId, FinishedRow, HandlerId,
    HandlerOrder, JsonText, NewEvent, Offset, Op, Partition, Priority, RunMark, SessionId, Space, Stream,
    Ticket, Timestamp, TopicKey, keys,
};

pub const DAY_MS: u64 = 86_400_000;

pub fn topic(name: &str) -> TopicKey {
    TopicKey::parse(&format!("suite/{name}")).unwrap_or_else(|error| panic!("{error}"))
}

pub fn stream(name: &str, partition: u32) -> Stream {
    topic(name).stream(Partition(partition))
}

/// Builds a batch with a nonce of its own.
pub fn batch(now: u64, ops: Vec<Op>) -> Batch {
    static NONCE: AtomicU64 = AtomicU64::new(1);
    let nonce = NONCE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    Batch { nonce, now: Timestamp(now), ops, ..Batch::default() }
}

pub fn checked(now: u64, checks: Vec<Check>, ops: Vec<Op>) -> Batch {
    Batch { checks, ..batch(now, ops) }
}

/// Builds an event body whose payload is `text` as a JSON string.
pub fn body(text: &str) -> EventBody {
    EventBody::of(JsonText::from_stored(Bytes::from(format!("{text:?}"))))
}

pub fn append(stream: &Stream, text: &str) -> Op {
    append_body(stream, None, body(text), DAY_MS)
}

pub fn append_id(stream: &Stream, id: &str, text: &str, dedupe_window_ms: u64) -> Op {
    let id = EventId::parse(id).unwrap_or_else(|error| panic!("{error}"));
    append_body(stream, Some(id), body(text), dedupe_window_ms)
}

pub fn append_body(stream: &Stream, id: Option<EventId>, body: EventBody, dedupe_window_ms: u64) -> Op {
    let event = NewEvent { id, body: Arc::new(body) };
    Op::Append(Append { stream: stream.clone(), event, dedupe_window_ms })
}

pub fn put(space: Space, key: &str, value: &str) -> Op {
    Op::Put { space, key: key.to_owned(), value: Bytes::copy_from_slice(value.as_bytes()) }
}

pub fn put_new(space: Space, key: &str, value: &str) -> Op {
    Op::PutNew { space, key: key.to_owned(), value: Bytes::copy_from_slice(value.as_bytes()) }
}

pub fn append_priority(stream: &Stream, text: &str, priority: i32) -> Op {
    append_body(stream, None, EventBody { priority: Priority(priority), ..body(text) }, 0)
}

pub fn append_keyed(stream: &Stream, text: &str, key: Option<&str>, priority: i32) -> Op {
    let (key, priority) = (key.map(Into::into), Priority(priority));
    append_body(stream, None, EventBody { key, priority, ..body(text) }, 0)
}

pub fn handler(name: &str) -> HandlerId {
    HandlerId::new(name).unwrap_or_else(|error| panic!("{error}"))
}

/// Builds a claim of a session that starts every event it claims at once.
pub fn claim_of(name: &str, of: &str, events_max: usize, lease_until: u64) -> Claim {
    Claim {
        topic: topic(name),
        handler: handler(of),
        session: SessionId::new("s").unwrap_or_else(|error| panic!("{error}")),
        events_max,
        bytes_max: usize::MAX,
        lease_until: Timestamp(lease_until),
        start_max: events_max,
        order: HandlerOrder::Priority,
    }
}

/// Builds the batch that a session commits when a handler has succeeded.
pub fn ack(now: u64, ticket: &Ticket) -> Batch {
    let row = FinishedRow {
        ending: Ending::Acked,
        at: Timestamp(now),
        attempts: ticket.row.attempts,
        session: ticket.row.session.clone(),
        error: None,
    };
    let key = keys::finished(&ticket.stream, ticket.offset, &ticket.handler);
    let finished = Op::Put { space: Space::Finished, key, value: row.encode() };
    checked(now, vec![ticket.check()], vec![ticket.delete(), finished])
}

/// Builds the batch that a session commits when a handler has failed: the event waits until `due`.
pub fn release(now: u64, ticket: &Ticket, due: u64) -> Batch {
    let row = ClaimRow {
        state: ClaimState::Waiting,
        due: Timestamp(due),
        attempts: ticket.row.attempts + 1,
        run: RunMark::Unknown,
        ..ticket.row.clone()
    };
    let waiting = Ticket { row, ..ticket.clone() };
    checked(now, vec![ticket.check()], vec![ticket.delete(), waiting.put()])
}

pub fn delete(space: Space, key: &str) -> Op {
    Op::Delete { space, key: key.to_owned() }
}

pub fn remove(stream: &Stream, offsets: &[u64], compacted_to: u64) -> Op {
    let offsets = offsets.iter().copied().map(Offset).collect();
    Op::Remove { stream: stream.clone(), offsets, compacted_to: Offset(compacted_to) }
}

pub fn trim(stream: &Stream, start: u64) -> Op {
    Op::Trim { stream: stream.clone(), start: Offset(start) }
}

pub fn drop_topic(name: &str) -> Op {
    Op::Drop { topic: topic(name) }
}

pub fn absent(space: Space, key: &str) -> Check {
    Check::Absent { space, key: key.to_owned() }
}

pub fn present(space: Space, key: &str) -> Check {
    Check::Present { space, key: key.to_owned() }
}

pub fn equals(space: Space, key: &str, value: &str) -> Check {
    Check::Equals { space, key: key.to_owned(), value: Bytes::copy_from_slice(value.as_bytes()) }
}
