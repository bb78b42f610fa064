//! Dead letters at their bounds: an event that is given up on is copied before it counts as done, however long the
//! reasons, however large the event, and also when the store will not take the batch.

mod desk;

use std::collections::BTreeMap;
use std::sync::Arc;

use desk::{Desk, event, group, subscription, topic};
use millrace_bus::*;
use millrace_model::*;

const MIRROR: &str = "system.bus.dlq";

fn strict() -> Desk {
    Desk::with(BusLimits { max_attempts: 1, max_inflight_max: 5000, ..BusLimits::default() })
}

fn read(desk: &mut Desk, conn: u64) {
    desk.open(conn);
    let (from, max_inflight) = (Some(From::Earliest), Some(5000));
    let ack_mode = Some(AckMode::Individual);
    desk.request(
        conn,
        Request::Subscribe(Subscribe { from, max_inflight, ack_mode, ..subscription("t", "g") }),
    );
}

fn nack(desk: &mut Desk, offset: u64, delay_ms: Option<u64>, reason: &str) {
    let nack = Nack {
        topic: topic("t"),
        partition: Partition(0),
        group: group("g"),
        offset: Offset(offset),
        reason: Some(reason.to_owned()),
        delay_ms,
        confirm: false,
    };
    desk.request(1, Request::Nack(nack));
}

fn log(desk: &Desk, name: &str) -> Vec<Arc<Event>> {
    desk.logs.get(&topic(name).stream(Partition(0))).cloned().unwrap_or_default()
}

fn header(event: &Event, name: &str) -> Option<String> {
    event.body.headers.as_ref()?.get(name)
}

/// Returns the source offsets of a topic's dead letters, in their order.
fn buried(desk: &Desk, name: &str) -> Vec<String> {
    log(desk, name).iter().filter_map(|letter| header(letter, "x-dlq-offset")).collect()
}

fn numbers(upto: u64) -> Vec<String> {
    (1..=upto).map(|n| n.to_string()).collect()
}

#[test]
fn letters_with_long_reasons_are_written_in_batches_that_fit() {
    let mut desk = strict();
    for n in 1..=4000 {
        desk.publish("t", &n.to_string());
    }
    read(&mut desk, 1);
    desk.hold = true;
    for offset in 1..=4000 {
        nack(&mut desk, offset, None, &"\u{1}".repeat(2000));
    }
    desk.release();
    assert_eq!(desk.committed("t", "g", 0), 4000);
    assert_eq!(buried(&desk, "t.DLQ"), numbers(4000));
    assert_eq!(buried(&desk, MIRROR), numbers(4000));
}

#[test]
fn reasons_of_any_setting_fit_beside_the_largest_event() {
    let limits = BusLimits { reason_bytes_max: 8 << 20, ..BusLimits::default() };
    let mut desk = Desk::with(BusLimits { max_inflight_max: 5000, max_attempts: 2, ..limits });
    let large = format!("\"{}\"", "x".repeat((12 << 20) - (64 << 10) - 200));
    desk.publish("t", &large);
    for n in 2..=1000 {
        desk.publish("t", &n.to_string());
    }
    desk.out();
    read(&mut desk, 1);
    nack(&mut desk, 1, None, "once");
    desk.hold = true;
    for offset in 2..=1000 {
        nack(&mut desk, offset, Some(3_600_000), &"\u{1}".repeat(100_000));
    }
    nack(&mut desk, 1, None, &"\u{1}".repeat(100_000));
    desk.release();
    desk.pass(1_000);
    let letters = log(&desk, "t.DLQ");
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].body.payload.as_str(), large, "the letter is whole");
    assert_eq!(header(&letters[0], "x-dlq-reason").map(|reason| reason.len()), Some(REASON_BYTES_MAX));
    let tries = desk.tables.iter().filter(|((space, _), _)| *space == Space::Tries);
    assert_eq!(tries.count(), 999);
}

#[test]
fn a_large_key_and_large_headers_fit_twice() {
    let mut desk = strict();
    read(&mut desk, 1);
    let headers: BTreeMap<String, String> = [TRACEPARENT, "x-dlq-mine", "x-dlq-payload", "other"]
        .map(|name| (name.to_owned(), "h".repeat(1 << 20)))
        .into();
    let body = EventBody {
        key: Some("k".repeat(6 << 20).into()),
        headers: Some(Headers::from_map(&headers)),
        ..EventBody::of(JsonText::null())
    };
    desk.publish_event("t", NewEvent { id: None, body: Arc::new(body.clone()) });
    nack(&mut desk, 1, None, "no");
    let (letters, mirror) = (log(&desk, "t.DLQ"), log(&desk, MIRROR));
    assert_eq!((letters.len(), mirror.len()), (1, 1));
    assert_eq!(letters[0].body.key, body.key);
    assert_eq!(header(&letters[0], "other").map(|value| value.len()), Some(1 << 20));
    assert_eq!(header(&letters[0], "x-dlq-payload"), None, "nothing is left out of this one");
    assert!(header(&mirror[0], "x-dlq-payload").is_some());
}

#[test]
fn an_event_that_leaves_no_room_for_its_story_is_buried_without_its_payload() {
    let mut desk = strict();
    read(&mut desk, 1);
    desk.publish("t", "1");
    // The largest event that a session in another process may commit.
    let stream = topic("t").stream(Partition(0));
    let event = event(&format!("\"{}\"", "x".repeat(BATCH_BYTES_MAX - 98)));
    let append = Append { stream: stream.clone(), event, dedupe_window_ms: 0 };
    let batch = Batch { ops: vec![Op::Append(append)], ..Batch::default() };
    assert!(matches!(desk.commit(batch), Outcome::Done(_)));
    desk.input(Input::Elsewhere {
        reaches: vec![Reach { stream, start: Offset(1), next: Offset(3) }],
        delayed: None,
    });
    desk.out();
    nack(&mut desk, 1, None, "no");
    nack(&mut desk, 2, None, "no");
    assert_eq!(desk.committed("t", "g", 0), 2);
    let letters = log(&desk, "t.DLQ");
    assert_eq!(letters.len(), 2);
    assert_eq!(letters[1].body.payload.as_str(), "null");
    assert!(header(&letters[1], "x-dlq-payload").is_some());
    assert_eq!(header(&letters[1], "x-dlq-offset").as_deref(), Some("2"));
}

/// Commits the held batches up to the first one with dead letters, and refuses that one. Returns how many events it
/// appends.
fn refuse_letters(desk: &mut Desk) -> usize {
    let appends = |batch: &Batch| batch.ops.iter().filter(|op| matches!(op, Op::Append(_))).count();
    loop {
        let (token, batch) = desk.held.remove(0);
        let found = appends(&batch);
        if found > 0 {
            desk.input(Input::TooLarge { token, bytes: batch.bytes() });
            return found;
        }
        let outcome = desk.commit(batch);
        desk.input(Input::Committed { token, outcome });
    }
}

#[test]
fn what_the_store_will_not_take_at_once_is_put_back_and_buried_one_by_one() {
    let mut desk = strict();
    for n in 1..=7 {
        desk.publish("t", &n.to_string());
    }
    read(&mut desk, 1);
    desk.hold = true;
    for offset in 1..=3 {
        nack(&mut desk, offset, None, "no");
    }
    assert_eq!(refuse_letters(&mut desk), 2, "a letter and its copy");
    for offset in 4..=6 {
        nack(&mut desk, offset, None, "no");
    }
    let topics = |op: &Op| matches!(op, Op::Put { space: Space::Topics, .. });
    assert!(
        desk.held.len() == 1 && desk.held[0].1.ops.iter().all(topics),
        "the letters not at once: the store has just refused them"
    );
    desk.ack(1, "t", "g", 7);
    desk.pass(1_000);
    assert_eq!(refuse_letters(&mut desk), 2, "one of the six");
    // No event is done whose letter was not written.
    assert_eq!(desk.committed("t", "g", 0), 0);
    desk.hold = false;
    let before = desk.commits;
    desk.pass(10_000);
    assert!(desk.commits - before >= 6, "one by one");
    assert_eq!(buried(&desk, "t.DLQ"), numbers(6));
    assert_eq!(buried(&desk, MIRROR), numbers(6));
    assert_eq!(desk.committed("t", "g", 0), 7);
    assert_eq!(desk.tables.keys().filter(|(space, _)| *space == Space::Tries).count(), 0);
}

#[test]
fn letters_of_a_refused_batch_survive_a_restart() {
    let mut desk = strict();
    desk.publish("t", "1");
    desk.publish("t", "2");
    read(&mut desk, 1);
    desk.hold = true;
    nack(&mut desk, 1, None, "no");
    refuse_letters(&mut desk);
    desk.hold = false;
    desk.ack(1, "t", "g", 2);
    desk.restart();
    read(&mut desk, 1);
    desk.pass(1_000);
    if buried(&desk, "t.DLQ").is_empty() {
        // The event's count of attempts was lost with the refused batch: the event is delivered once more.
        nack(&mut desk, 1, None, "no");
    }
    assert_eq!(buried(&desk, "t.DLQ"), numbers(1));
    assert!(desk.tables.contains_key(&(Space::Topics, topic("t.DLQ").as_str().to_owned())));
}

#[test]
fn a_group_that_was_moved_meanwhile_takes_nothing_back() {
    let mut desk = strict();
    desk.publish("t", "1");
    read(&mut desk, 1);
    desk.hold = true;
    nack(&mut desk, 1, None, "no");
    let refused = desk.held.pop().expect("the letter");
    desk.release();
    let (topic, group) = (topic("t"), group("g"));
    desk.call(Request::SeekGroup { topic, group, partition: None, from: From::Latest });
    desk.input(Input::TooLarge { token: refused.0, bytes: refused.1.bytes() });
    desk.pass(10_000);
    assert_eq!(desk.committed("t", "g", 0), 1);
    desk.publish("t", "2");
    assert!(desk.out().iter().any(|line| line == "1<- g t/0/2 2"));
    assert_eq!(buried(&desk, "t.DLQ"), Vec::<String>::new());
}
