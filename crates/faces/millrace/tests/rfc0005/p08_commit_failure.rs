//! 8. A commit that fails fails the attempt; the handler runs again from its beginning and duplicates nothing.

use std::time::Duration;

use millrace::{Config, Entity};
use serde::{Deserialize, Serialize};

use crate::words::*;

/// Has the name of another stored type: every commit of it is refused, as a violated constraint would be.
#[derive(Entity, Serialize, Deserialize)]
#[entity(name = "Payment")]
struct Drifted {
    #[key]
    order: u64,
    amount: i64,
}

#[test]
fn a_failed_commit_is_tried_again_and_its_events_are_discarded() {
    let sim = simulation();
    let seen = Seen::default();
    sim.ensure(paid(99)).unwrap();
    sim.commit().unwrap();
    let notes = seen.clone();
    let handler = on::<OrderPlaced>("pays", move |ctx| {
        notes.add(format!("try {}", ctx.meta().attempt));
        ctx.emit(PaymentDone { order: ctx.event.order })?;
        if ctx.meta().attempt == 1 {
            ctx.ensure(Drifted { order: 1, amount: 3 })?;
        } else {
            ctx.ensure(paid(1))?;
        }
        ctx.commit()?;
        Ok(())
    });
    sim.publish(OrderPlaced { order: 1 }).unwrap();
    sim.start(vec![handler, noting::<PaymentDone>("payments", &seen)], vec![]).unwrap();
    sim.advance(Duration::from_secs(10)).unwrap();
    assert_eq!(seen.all(), ["try 1", "try 2", r#"payments {"order":1}"#]);
}

#[test]
fn the_second_commit_fails_and_the_first_is_not_repeated() {
    let sim = simulation();
    let seen = Seen::default();
    let notes = seen.clone();
    let handler = on::<OrderPlaced>("two-steps", move |ctx| {
        ctx.ensure(Payment { order: 1, status: "first".to_owned() })?;
        let first = ctx.commit_with(PaymentDone { order: 1 })?;
        notes.add(format!("try {}: {first:?}", ctx.meta().attempt));
        if ctx.meta().attempt == 1 {
            ctx.ensure(Drifted { order: 2, amount: 3 })?;
        } else {
            ctx.ensure(paid(2))?;
        }
        ctx.commit_with(PaymentDone { order: 2 })?;
        Ok(())
    });
    sim.publish(OrderPlaced { order: 1 }).unwrap();
    sim.start(vec![handler, noting::<PaymentDone>("payments", &seen)], vec![]).unwrap();
    sim.advance(Duration::from_secs(10)).unwrap();
    let seen = seen.all();
    assert_eq!(
        seen.iter().filter(|line| line.starts_with("try")).collect::<Vec<_>>(),
        ["try 1: Some(1)", "try 2: None"]
    );
    assert_eq!(seen.iter().filter(|line| *line == r#"payments {"order":1}"#).count(), 1, "{seen:?}");
    assert_eq!(seen.iter().filter(|line| *line == r#"payments {"order":2}"#).count(), 1, "{seen:?}");
    assert_eq!(sim.state().list_commits(10, millrace::StateCommit(0)).unwrap().len(), 2);
}

#[test]
fn a_commit_that_can_never_work_ends_as_a_dead_letter() {
    let sim = simulation()
        .to_builder()
        .config(Config { event_max_attempts: 3, ..Config::default() })
        .open()
        .unwrap();
    sim.ensure(paid(1)).unwrap();
    sim.commit().unwrap();
    let handler = on::<OrderPlaced>("drifted", |ctx| {
        ctx.ensure(Drifted { order: 1, amount: 3 })?;
        ctx.commit()?;
        Ok(())
    });
    sim.publish(OrderPlaced { order: 1 }).unwrap();
    sim.start(vec![handler], vec![]).unwrap();
    sim.advance(Duration::from_secs(3600)).unwrap();
    let dead = sim.dead_letters().unwrap();
    assert_eq!(dead.len(), 1);
    assert!(dead[0].error.contains("schema"), "{}", dead[0].error);
    assert_eq!(sim.get::<Payment>(1_u64).unwrap().unwrap().status, "completed");
}
