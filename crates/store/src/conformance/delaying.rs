//! Delayed events: an id is taken from the moment its event is confirmed, whether it waits or is stored.

use bytes::Bytes;
use millrace_model::{Append, Appended, Batch, Delay, EventId, Op, Space, Timestamp, keys};

use super::Subject;
use super::build::{append_id, batch, delete, drop_topic, stream, topic};

const MADE: u64 = 7;
const WINDOW_MS: u64 = 1000;

fn id_of(id: &str) -> EventId {
    EventId::parse(id).unwrap_or_else(|error| panic!("{error}"))
}

fn delay_of(id: &str, made: u64, due: u64, nonce: u64) -> Op {
    let key = keys::due(Timestamp(due), nonce, 0);
    Op::Delay(Delay {
        topic: topic("delays"),
        made,
        id: id_of(id),
        dedupe_window_ms: WINDOW_MS,
        due: Timestamp(due),
        key,
        row: Bytes::from_static(b"row"),
    })
}

fn delay(now: u64, id: &str, due: u64) -> Batch {
    batch(now, vec![delay_of(id, MADE, due, now)])
}

fn bring_op(id: &str, made: Option<u64>) -> Op {
    match append_id(&stream("delays", 1), id, id, WINDOW_MS) {
        Op::Append(append) => Op::Append(Append { made, ..append }),
        op => op,
    }
}

fn bring(now: u64, id: &str) -> Batch {
    batch(now, vec![bring_op(id, Some(MADE))])
}

/// What the bus does when it is due.
fn moved(now: u64, id: &str, due: u64, nonce: u64) -> Batch {
    let key = keys::due(Timestamp(due), nonce, 0);
    let ops = vec![
        delete(Space::Due, &key),
        delete(Space::DueIds, &keys::due_id(&topic("delays"), MADE, &id_of(id))),
        append_id(&stream("delays", 0), id, id, 0),
    ];
    batch(now, ops)
}

/// Duplicate, offset, due.
fn seen(appended: &[Appended]) -> Vec<(bool, u64, Option<u64>)> {
    appended.iter().map(|one| (one.duplicate, one.offset.0, one.due.map(|due| due.0))).collect()
}

pub(super) fn a_delayed_event_takes_its_id(subject: &mut Subject) {
    assert_eq!(seen(&subject.done(delay(10, "a", 500))), [(false, 0, Some(500))]);
    for now in 11..14 {
        assert_eq!(seen(&subject.done(bring(now, "a"))), [(true, 0, Some(500))]);
        assert_eq!(seen(&subject.done(delay(now, "a", 900))), [(true, 0, Some(500))]);
        subject.maintain_all(100);
        subject.reopen();
    }
    assert_eq!(subject.table(Space::Due).len(), 1);
    assert!(subject.payloads(&stream("delays", 1)).is_empty());
    assert_eq!(seen(&subject.done(bring(14, "b"))), [(false, 1, None)]);
    assert_eq!(seen(&subject.done(moved(500, "a", 500, 10))), [(false, 1, None)]);
    for now in 501..503 {
        assert_eq!(seen(&subject.done(bring(now, "a"))), [(true, 1, None)]);
        assert_eq!(seen(&subject.done(delay(now, "a", 900))), [(true, 1, None)]);
        subject.reopen();
    }
    assert!(subject.table(Space::Due).is_empty() && subject.table(Space::DueIds).is_empty());
}

pub(super) fn a_delayed_event_whose_id_is_stored_is_a_duplicate(subject: &mut Subject) {
    subject.done(bring(10, "a"));
    assert_eq!(seen(&subject.done(delay(11, "a", 500))), [(true, 1, None)]);
    assert!(subject.table(Space::Due).is_empty());
    assert_eq!(seen(&subject.done(delay(10 + WINDOW_MS + 1, "a", 5000))), [(false, 0, Some(5000))]);
}

pub(super) fn delays_and_appends_of_one_commit_see_one_another(subject: &mut Subject) {
    let ops = vec![
        delay_of("a", MADE, 500, 1),
        bring_op("a", Some(MADE)),
        bring_op("b", Some(MADE)),
        delay_of("b", MADE, 500, 2),
    ];
    let expected = [(false, 0, Some(500)), (true, 0, Some(500)), (false, 1, None), (true, 1, None)];
    assert_eq!(seen(&subject.done(batch(10, ops))), expected);
    assert_eq!(subject.table(Space::Due).len(), 1);
}

pub(super) fn an_id_is_free_when_nothing_waits_under_it(subject: &mut Subject) {
    subject.done(delay(10, "a", 500));
    // Another topic of that name, and somebody who does not ask.
    assert_eq!(seen(&subject.done(batch(11, vec![delay_of("a", 8, 600, 11)]))), [(false, 0, Some(600))]);
    assert_eq!(seen(&subject.done(batch(11, vec![bring_op("a", None)]))), [(false, 1, None)]);
    subject.done(batch(12, vec![drop_topic("delays")]));
    assert_eq!(seen(&subject.done(bring(13, "a"))), [(true, 0, Some(500))], "its row is the caller's");
    // The event was set aside and its id's row was left.
    subject.done(batch(14, vec![delete(Space::Due, &keys::due(Timestamp(500), 10, 0))]));
    assert_eq!(seen(&subject.done(delay(15, "a", 700))), [(false, 0, Some(700))]);
    assert_eq!(seen(&subject.done(bring(16, "a"))), [(true, 0, Some(700))]);
}
