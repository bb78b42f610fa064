//! 4. Each handler acknowledges an event for itself.

use std::time::Duration;

use crate::words::*;

#[test]
fn handlers_finish_the_same_event_independently_and_once() {
    let sim = simulation();
    let seen = Seen::default();
    let notes = seen.clone();
    let failing = on::<Ping>("failing", move |ctx| {
        notes.add(format!("failing {}", ctx.meta().attempt));
        if ctx.meta().attempt < 3 { Err("not yet".into()) } else { Ok(()) }
    });
    sim.publish(Ping { n: 1 }).unwrap();
    sim.start(vec![noting::<Ping>("fine", &seen), failing], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(seen.take(), ["failing 1", r#"fine {"n":1}"#]);
    sim.advance(Duration::from_secs(3600)).unwrap();
    assert_eq!(seen.take(), ["failing 2", "failing 3"]);
    // An acknowledgement also holds for a later session.
    sim.stop().unwrap();
    let later = sim.beside();
    later.start(vec![noting::<Ping>("fine", &seen), noting::<Ping>("new", &seen)], vec![]).unwrap();
    later.advance(Duration::from_secs(3600)).unwrap();
    assert_eq!(seen.take(), [r#"new {"n":1}"#], "a new handler gets the backlog, the old one nothing");
}
