//! 5. After a crash without an acknowledgement the lease expires and another session takes over; a started run counts.

use std::time::Duration;

use crate::words::*;

#[test]
fn a_crashed_handlers_event_is_claimed_again_after_its_lease() {
    let sim = simulation();
    let seen = Seen::default();
    let (crashing, notes) = (sim.clone(), seen.clone());
    let handler = on::<Ping>("worker", move |ctx| {
        notes.add(format!("crashes at try {}", ctx.meta().attempt));
        crashing.crash();
        Ok(())
    });
    sim.publish(Ping { n: 1 }).unwrap();
    sim.start(vec![handler], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(seen.take(), ["crashes at try 1"]);

    let other = sim.beside();
    let notes = seen.clone();
    let handler = on::<Ping>("worker", move |ctx| {
        notes.add(format!("try {} at {}", ctx.meta().attempt, ctx.now()));
        Ok(())
    });
    other.start(vec![handler], vec![]).unwrap();
    other.advance(Duration::from_millis(29_999)).unwrap();
    assert_eq!(seen.take(), Vec::<String>::new(), "the lease still holds");
    other.advance(Duration::from_millis(1_001)).unwrap();
    let seen = seen.take();
    assert_eq!(seen.len(), 1, "{seen:?}");
    // The crash cost no attempt: the claim only said that the run would start at once, and the session died before it
    // could record the start (decision 0034).
    assert!(seen[0].starts_with("try 1 at 2026-01-01T00:00:3"), "{seen:?}");
}

#[test]
fn a_crash_loop_ends_in_a_dead_letter() {
    let sim = simulation();
    let seen = Seen::default();
    sim.publish(Ping { n: 1 }).unwrap();
    for _ in 0..12 {
        let session = sim.beside();
        let (crashing, notes) = (session.clone(), seen.clone());
        let handler = on::<Ping>("worker", move |ctx| {
            notes.add(ctx.meta().attempt.to_string());
            crashing.crash();
            Ok(())
        });
        session.start(vec![handler], vec![]).unwrap();
        session.advance(Duration::from_secs(40)).unwrap();
        session.crash();
    }
    // The first crash costs no attempt, because it is unknown whether the handler was called.
    assert_eq!(seen.all(), ["1", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    let dead = sim.dead_letters().unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].attempts, dead[0].handler.as_str()), (10, "worker"));
}
