//! Ids that publishers bring, where delays are involved: an id is taken from the moment its event is confirmed, whether
//! the event waits or is stored.

mod desk;

use desk::*;
use millrace_bus::*;
use millrace_model::*;

fn with_id(id: &str, payload: &str) -> NewEvent {
    NewEvent { id: Some(EventId::parse(id).expect("an id")), ..event(payload) }
}

fn now(desk: &mut Desk, id: &str, payload: &str) {
    desk.publish_event("t", with_id(id, payload));
}

fn later(desk: &mut Desk, ms: u64, id: &str, payload: &str) {
    let (topic, event) = (topic("t"), with_id(id, payload));
    desk.call(Request::Publish(Publish { topic, event, deliver_at: Some(DeliverAt::AfterMs(ms)) }));
}

fn stored(desk: &Desk) -> Vec<&str> {
    desk.logs.values().flatten().map(|event| event.body.payload.as_str()).collect()
}

#[test]
fn the_id_of_an_event_that_waits_is_taken() {
    for restart in [false, true] {
        let mut desk = Desk::new();
        later(&mut desk, 5_000, "x", "\"first\"");
        if restart {
            desk.restart();
        }
        now(&mut desk, "x", "\"second\"");
        later(&mut desk, 60_000, "x", "\"third\"");
        now(&mut desk, "y", "\"other\"");
        desk.expect(&["delayed to 1005001", "delayed to 1005001", "delayed to 1005001", "published 0/1"]);
        desk.pass(100_000);
        assert_eq!(stored(&desk), ["\"other\"", "\"first\""]);
        now(&mut desk, "x", "\"fourth\"");
        later(&mut desk, 60_000, "x", "\"fifth\"");
        desk.expect(&["published 0/2", "published 0/2"]);
        desk.pass(100_000);
        assert_eq!(stored(&desk).len(), 2);
        assert!(desk.tables.keys().all(|(space, _)| *space != Space::Due && *space != Space::DueIds));
    }
}

#[test]
fn a_delayed_event_whose_id_is_stored_is_answered_with_its_place() {
    let mut desk = Desk::new();
    now(&mut desk, "x", "1");
    later(&mut desk, 5_000, "x", "2");
    desk.restart();
    later(&mut desk, 5_000, "x", "3");
    desk.expect(&["published 0/1", "published 0/1", "published 0/1"]);
    desk.pass(100_000);
    assert_eq!(stored(&desk), ["1"]);
}

#[test]
fn in_a_batch_only_the_event_whose_id_waits_is_left_out() {
    let mut desk = Desk::new();
    later(&mut desk, 5_000, "x", "\"first\"");
    let events = vec![event("1"), with_id("x", "2"), with_id("y", "3")];
    desk.call(Request::PublishBatch(PublishBatch { topic: topic("t"), events }));
    desk.expect(&["delayed to 1005001", "published 0/1 0/0 0/2"]);
    desk.pass(10_000);
    assert_eq!(stored(&desk), ["1", "3", "\"first\""]);
}

#[test]
fn publishes_that_are_committed_together_see_one_another() {
    let mut desk = Desk::new();
    desk.hold = true;
    later(&mut desk, 5_000, "x", "1");
    now(&mut desk, "x", "2");
    now(&mut desk, "y", "3");
    later(&mut desk, 5_000, "y", "4");
    desk.release();
    desk.expect(&["delayed to 1005001", "delayed to 1005001", "published 0/1", "published 0/1"]);
    desk.pass(10_000);
    assert_eq!(stored(&desk), ["3", "1"]);
}

#[test]
fn a_confirmed_delayed_event_is_stored_although_the_clock_was_set_back() {
    let limits = BusLimits { dedupe_window_ms: 1_000, ..BusLimits::default() };
    let mut desk = Desk::with(limits);
    now(&mut desk, "x", "1");
    desk.pass(2_000);
    later(&mut desk, 500, "x", "2");
    desk.expect(&["published 0/1", "delayed to 1002501"]);
    desk.now.wall = Timestamp(1_000_500);
    desk.pass(10_000);
    assert_eq!(stored(&desk), ["1", "2"]);
}

#[test]
fn an_id_whose_waiting_event_cannot_be_read_is_free_once_that_is_set_aside() {
    let mut desk = Desk::new();
    later(&mut desk, 5_000, "x", "1");
    for (_, value) in desk.tables.iter_mut().filter(|((space, _), _)| *space == Space::Due) {
        *value = "{".into();
    }
    desk.pass(10_000);
    now(&mut desk, "x", "2");
    desk.expect(&["delayed to 1005001", "published 0/1"]);
}
