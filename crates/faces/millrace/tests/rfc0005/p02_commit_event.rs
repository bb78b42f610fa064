//! 2. A commit sends an event only if told to, and exactly that event.

use millrace::Event as _;

use crate::words::*;

#[test]
fn commit_with_enqueues_its_event_and_commit_none() {
    let sim = simulation();
    let seen = Seen::default();
    sim.ensure(paid(1)).unwrap();
    assert_eq!(sim.commit_with(PaymentDone { order: 1 }).unwrap(), Some(1));
    sim.ensure(paid(2)).unwrap();
    assert_eq!(sim.commit().unwrap(), Some(2));
    sim.start(vec![noting::<PaymentDone>("payments", &seen)], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(seen.take(), [r#"payments {"order":1}"#]);
    // The event is sent even when no state changed.
    sim.ensure(paid(2)).unwrap();
    assert_eq!(sim.commit_with(PaymentDone { order: 2 }).unwrap(), None);
    sim.run_until_idle().unwrap();
    assert_eq!(seen.take(), [r#"payments {"order":2}"#]);
}

#[test]
fn type_payload_priority_key_and_headers_are_those_of_the_event() {
    let sim = simulation();
    let seen = Seen::default();
    let notes = seen.clone();
    let handler = on::<OrderPlaced>("orders", move |ctx| {
        let meta = ctx.meta();
        notes.add(format!(
            "{} {} {:?} {:?} {:?}",
            meta.event_type, ctx.event.order, meta.priority, meta.key, meta.headers
        ));
        Ok(())
    });
    let event = OrderPlaced { order: 3 }.with_priority(7).with_key("k").with_header("a", "b");
    sim.commit_with(event).unwrap();
    sim.start(vec![handler], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(seen.all(), [r#"order.placed 3 Priority(7) Some("k") {"a": "b"}"#]);
}
