//! Ids that publishers bring, where delays are involved: an id is taken from the moment its event is confirmed, whether
//! the event waits or is stored.

mod harness;

use harness::*;
use millrace_bus::*;
use millrace_model::*;

fn with_id(id: &str, payload: &str) -> NewEvent {
    NewEvent { id: Some(EventId::parse(id).expect("an id")), ..event(payload) }
}

fn now(harness: &mut Harness, id: &str, payload: &str) {
    harness.publish_event("t", with_id(id, payload));
}

fn later(harness: &mut Harness, ms: u64, id: &str, payload: &str) {
    let (topic, event) = (topic("t"), with_id(id, payload));
    harness.call(Request::Publish(Publish { topic, event, deliver_at: Some(DeliverAt::AfterMs(ms)) }));
}

fn stored(harness: &Harness) -> Vec<String> {
    harness.payloads()
}

#[test]
fn the_id_of_an_event_that_waits_is_taken() {
    for restart in [false, true] {
        let mut harness = Harness::new();
        later(&mut harness, 5_000, "x", "\"first\"");
        if restart {
            harness.restart();
        }
        now(&mut harness, "x", "\"second\"");
        later(&mut harness, 60_000, "x", "\"third\"");
        now(&mut harness, "y", "\"other\"");
        harness.expect(&["delayed to 1005001", "delayed to 1005001", "delayed to 1005001", "published 0/1"]);
        harness.pass(100_000);
        assert_eq!(stored(&harness), ["\"other\"", "\"first\""]);
        now(&mut harness, "x", "\"fourth\"");
        later(&mut harness, 60_000, "x", "\"fifth\"");
        harness.expect(&["published 0/2", "published 0/2"]);
        harness.pass(100_000);
        assert_eq!(stored(&harness).len(), 2);
        assert!(harness.tables().keys().all(|(space, _)| *space != Space::Due && *space != Space::DueIds));
    }
}

#[test]
fn a_delayed_event_whose_id_is_stored_is_answered_with_its_place() {
    let mut harness = Harness::new();
    now(&mut harness, "x", "1");
    later(&mut harness, 5_000, "x", "2");
    harness.restart();
    later(&mut harness, 5_000, "x", "3");
    harness.expect(&["published 0/1", "published 0/1", "published 0/1"]);
    harness.pass(100_000);
    assert_eq!(stored(&harness), ["1"]);
}

#[test]
fn in_a_batch_only_the_event_whose_id_waits_is_left_out() {
    let mut harness = Harness::new();
    later(&mut harness, 5_000, "x", "\"first\"");
    let events = vec![event("1"), with_id("x", "2"), with_id("y", "3")];
    harness.call(Request::PublishBatch(PublishBatch { topic: topic("t"), events }));
    harness.expect(&["delayed to 1005001", "published 0/1 0/0 0/2"]);
    harness.pass(10_000);
    assert_eq!(stored(&harness), ["1", "3", "\"first\""]);
}

#[test]
fn publishes_that_are_committed_together_see_one_another() {
    let mut harness = Harness::new();
    harness.hold = true;
    later(&mut harness, 5_000, "x", "1");
    now(&mut harness, "x", "2");
    now(&mut harness, "y", "3");
    later(&mut harness, 5_000, "y", "4");
    harness.release();
    harness.expect(&["delayed to 1005001", "delayed to 1005001", "published 0/1", "published 0/1"]);
    harness.pass(10_000);
    assert_eq!(stored(&harness), ["3", "1"]);
}

#[test]
fn a_confirmed_delayed_event_is_stored_although_the_clock_was_set_back() {
    let limits = BusLimits { dedupe_window_ms: 1_000, ..BusLimits::default() };
    let mut harness = Harness::with(limits);
    now(&mut harness, "x", "1");
    harness.pass(2_000);
    later(&mut harness, 500, "x", "2");
    harness.expect(&["published 0/1", "delayed to 1002501"]);
    harness.now.wall = Timestamp(1_000_500);
    harness.pass(10_000);
    assert_eq!(stored(&harness), ["1", "2"]);
}

#[test]
fn an_id_whose_waiting_event_cannot_be_read_is_free_once_that_is_set_aside() {
    let mut harness = Harness::new();
    later(&mut harness, 5_000, "x", "1");
    for (space, key) in harness.tables().into_keys().filter(|(space, _)| *space == Space::Due) {
        harness.put_row(space, &key, "{".into());
    }
    harness.pass(10_000);
    now(&mut harness, "x", "2");
    harness.expect(&["delayed to 1005001", "published 0/1"]);
}
