//! Dead letters at their bounds: an event that is given up on is copied before it counts as done, however long the
//! reasons, however large the event, and also when the store will not take the batch.

mod harness;

use std::collections::BTreeMap;
use std::sync::Arc;

use harness::{Harness, event, group, subscription, topic};
use millrace_bus::*;
use millrace_model::*;

const MIRROR: &str = "system.bus.dlq";

fn strict() -> Harness {
    Harness::with(BusLimits { max_attempts: 1, max_inflight_max: 5000, ..BusLimits::default() })
}

fn read(harness: &mut Harness, conn: u64) {
    harness.open(conn);
    let (from, max_inflight) = (Some(From::Earliest), Some(5000));
    let ack_mode = Some(AckMode::Individual);
    harness.request(
        conn,
        Request::Subscribe(Subscribe { from, max_inflight, ack_mode, ..subscription("t", "g") }),
    );
}

fn nack(harness: &mut Harness, offset: u64, delay_ms: Option<u64>, reason: &str) {
    let nack = Nack {
        topic: topic("t"),
        partition: Partition(0),
        group: group("g"),
        offset: Offset(offset),
        reason: Some(reason.to_owned()),
        delay_ms,
        confirm: false,
    };
    harness.request(1, Request::Nack(nack));
}

fn log(harness: &Harness, name: &str) -> Vec<Arc<Event>> {
    harness.log(name)
}

fn header(event: &Event, name: &str) -> Option<String> {
    event.body.headers.as_ref()?.get(name)
}

/// Returns the source offsets of a topic's dead letters, in their order.
fn buried(harness: &Harness, name: &str) -> Vec<String> {
    log(harness, name).iter().filter_map(|letter| header(letter, "x-dlq-offset")).collect()
}

fn numbers(upto: u64) -> Vec<String> {
    (1..=upto).map(|n| n.to_string()).collect()
}

#[test]
fn letters_with_long_reasons_are_written_in_batches_that_fit() {
    let mut harness = strict();
    for n in 1..=4000 {
        harness.publish("t", &n.to_string());
    }
    read(&mut harness, 1);
    harness.hold = true;
    for offset in 1..=4000 {
        nack(&mut harness, offset, None, &"\u{1}".repeat(2000));
    }
    harness.release();
    assert_eq!(harness.committed("t", "g", 0), 4000);
    assert_eq!(buried(&harness, "t.DLQ"), numbers(4000));
    assert_eq!(buried(&harness, MIRROR), numbers(4000));
}

#[test]
fn reasons_of_any_setting_fit_beside_the_largest_event() {
    let limits = BusLimits { reason_bytes_max: 8 << 20, ..BusLimits::default() };
    let mut harness = Harness::with(BusLimits { max_inflight_max: 5000, max_attempts: 2, ..limits });
    let large = format!("\"{}\"", "x".repeat((12 << 20) - (64 << 10) - 200));
    harness.publish("t", &large);
    for n in 2..=1000 {
        harness.publish("t", &n.to_string());
    }
    harness.out();
    read(&mut harness, 1);
    nack(&mut harness, 1, None, "once");
    harness.hold = true;
    for offset in 2..=1000 {
        nack(&mut harness, offset, Some(3_600_000), &"\u{1}".repeat(100_000));
    }
    nack(&mut harness, 1, None, &"\u{1}".repeat(100_000));
    harness.release();
    harness.pass(1_000);
    let letters = log(&harness, "t.DLQ");
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].body.payload.as_str(), large, "the letter is whole");
    assert_eq!(header(&letters[0], "x-dlq-reason").map(|reason| reason.len()), Some(REASON_BYTES_MAX));
    assert_eq!(harness.count_rows(Space::Attempts), 999);
}

#[test]
fn a_large_key_and_large_headers_fit_twice() {
    let mut harness = strict();
    read(&mut harness, 1);
    let headers: BTreeMap<String, String> = [TRACEPARENT, "x-dlq-mine", "x-dlq-payload", "other"]
        .map(|name| (name.to_owned(), "h".repeat(1 << 20)))
        .into();
    let body = EventBody {
        key: Some("k".repeat(6 << 20).into()),
        headers: Some(Headers::from_map(&headers)),
        ..EventBody::of(JsonText::null())
    };
    harness.publish_event("t", NewEvent { id: None, body: Arc::new(body.clone()) });
    nack(&mut harness, 1, None, "no");
    let (letters, mirror) = (log(&harness, "t.DLQ"), log(&harness, MIRROR));
    assert_eq!((letters.len(), mirror.len()), (1, 1));
    assert_eq!(letters[0].body.key, body.key);
    assert_eq!(header(&letters[0], "other").map(|value| value.len()), Some(1 << 20));
    assert_eq!(header(&letters[0], "x-dlq-payload"), None, "nothing is left out of this one");
    assert!(header(&mirror[0], "x-dlq-payload").is_some());
}

#[test]
fn an_event_that_leaves_no_room_for_its_story_is_buried_without_its_payload() {
    let mut harness = strict();
    read(&mut harness, 1);
    harness.publish("t", "1");
    // The largest event that a session in another process may commit.
    let stream = topic("t").stream(Partition(0));
    let event = event(&format!("\"{}\"", "x".repeat(BATCH_BYTES_MAX - 98)));
    let append = Append { stream: stream.clone(), event, dedupe_window_ms: 0 };
    let batch = Batch { ops: vec![Op::Append(append)], ..Batch::default() };
    assert!(matches!(harness.commit(batch), Outcome::Done(_)));
    harness.input(Input::Elsewhere {
        reaches: vec![Reach { stream, start: Offset(1), next: Offset(3) }],
        delayed: None,
    });
    harness.out();
    nack(&mut harness, 1, None, "no");
    nack(&mut harness, 2, None, "no");
    assert_eq!(harness.committed("t", "g", 0), 2);
    let letters = log(&harness, "t.DLQ");
    assert_eq!(letters.len(), 2);
    assert_eq!(letters[1].body.payload.as_str(), "null");
    assert!(header(&letters[1], "x-dlq-payload").is_some());
    assert_eq!(header(&letters[1], "x-dlq-offset").as_deref(), Some("2"));
}

/// Commits the held batches up to the first one with dead letters, and refuses that one. Returns how many events it
/// appends.
fn refuse_letters(harness: &mut Harness) -> usize {
    let appends = |batch: &Batch| batch.ops.iter().filter(|op| matches!(op, Op::Append(_))).count();
    loop {
        let (token, batch) = harness.held.remove(0);
        let found = appends(&batch);
        if found > 0 {
            harness.input(Input::TooLarge { token, bytes: batch.bytes() });
            return found;
        }
        let outcome = harness.commit(batch);
        harness.input(Input::Committed { token, outcome });
    }
}

#[test]
fn what_the_store_will_not_take_at_once_is_put_back_and_buried_one_by_one() {
    let mut harness = strict();
    for n in 1..=7 {
        harness.publish("t", &n.to_string());
    }
    read(&mut harness, 1);
    harness.hold = true;
    for offset in 1..=3 {
        nack(&mut harness, offset, None, "no");
    }
    assert_eq!(refuse_letters(&mut harness), 2, "a letter and its copy");
    for offset in 4..=6 {
        nack(&mut harness, offset, None, "no");
    }
    let topics = |op: &Op| matches!(op, Op::Put { space: Space::Topics, .. });
    assert!(
        harness.held.len() == 1 && harness.held[0].1.ops.iter().all(topics),
        "the letters not at once: the store has just refused them"
    );
    harness.ack(1, "t", "g", 7);
    harness.pass(1_000);
    assert_eq!(refuse_letters(&mut harness), 2, "one of the six");
    // No event is done whose letter was not written.
    assert_eq!(harness.committed("t", "g", 0), 0);
    harness.hold = false;
    let before = harness.commits;
    harness.pass(10_000);
    assert!(harness.commits - before >= 6, "one by one");
    assert_eq!(buried(&harness, "t.DLQ"), numbers(6));
    assert_eq!(buried(&harness, MIRROR), numbers(6));
    assert_eq!(harness.committed("t", "g", 0), 7);
    assert_eq!(harness.count_rows(Space::Attempts), 0);
}

#[test]
fn letters_of_a_refused_batch_survive_a_restart() {
    let mut harness = strict();
    harness.publish("t", "1");
    harness.publish("t", "2");
    read(&mut harness, 1);
    harness.hold = true;
    nack(&mut harness, 1, None, "no");
    refuse_letters(&mut harness);
    harness.hold = false;
    harness.ack(1, "t", "g", 2);
    harness.restart();
    read(&mut harness, 1);
    harness.pass(1_000);
    if buried(&harness, "t.DLQ").is_empty() {
        // The event's count of attempts was lost with the refused batch: the event is delivered once more.
        nack(&mut harness, 1, None, "no");
    }
    assert_eq!(buried(&harness, "t.DLQ"), numbers(1));
    assert!(harness.tables().contains_key(&(Space::Topics, topic("t.DLQ").as_str().to_owned())));
}

#[test]
fn a_group_that_was_moved_meanwhile_takes_nothing_back() {
    let mut harness = strict();
    harness.publish("t", "1");
    read(&mut harness, 1);
    harness.hold = true;
    nack(&mut harness, 1, None, "no");
    let refused = harness.held.pop().expect("the letter");
    harness.release();
    let (topic, group) = (topic("t"), group("g"));
    harness.call(Request::SeekGroup { topic, group, partition: None, from: From::Latest });
    harness.input(Input::TooLarge { token: refused.0, bytes: refused.1.bytes() });
    harness.pass(10_000);
    assert_eq!(harness.committed("t", "g", 0), 1);
    harness.publish("t", "2");
    assert!(harness.out().iter().any(|line| line == "1<- g t/0/2 2"));
    assert_eq!(buried(&harness, "t.DLQ"), Vec::<String>::new());
}
