//! 6. A handler that runs longer than its lease writes nothing.

use std::time::Duration;

use millrace::SessionError;

use crate::words::*;

const TOO_LONG: Duration = Duration::from_millis(30_000);

#[test]
fn a_commit_after_the_lease_is_refused_and_the_handler_is_tried_again() {
    let sim = simulation();
    let seen = Seen::default();
    let (clock, notes) = (sim.clock(), seen.clone());
    let slow_once = on::<OrderPlaced>("slow", move |ctx| {
        let attempt = ctx.meta().attempt;
        ctx.emit(PaymentDone { order: ctx.event.order })?;
        ctx.ensure(Payment { order: ctx.event.order, status: format!("try {attempt}") })?;
        if attempt == 1 {
            clock.pass(TOO_LONG);
            let refused = ctx.commit();
            assert!(matches!(refused, Err(SessionError::LeaseExpired)), "{refused:?}");
        } else {
            ctx.commit()?;
        }
        notes.add(format!("slow {attempt}"));
        // The handler ignores that its commit was refused: the attempt has failed anyway.
        Ok(())
    });
    sim.publish(OrderPlaced { order: 1 }).unwrap();
    sim.start(vec![slow_once, noting::<PaymentDone>("payments", &seen)], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(seen.take()[..1], ["slow 1"]);
    sim.advance(Duration::from_secs(60)).unwrap();
    let status = sim.get::<Payment>(1_u64).unwrap().unwrap().value.status;
    assert_eq!(status, "try 2");
    let payments = sim.beside();
    payments.start(vec![noting::<PaymentDone>("count", &seen)], vec![]).unwrap();
    payments.run_until_idle().unwrap();
    assert_eq!(seen.all().iter().filter(|line| line.starts_with("count")).count(), 1, "emitted once");
}

/// A commit in the last millisecond of a lease succeeds; one millisecond later it is refused.
#[test]
fn the_lease_ends_exactly_when_it_says() {
    for (used, refused) in [(29_999, false), (30_000, true)] {
        let sim = simulation();
        let seen = Seen::default();
        let (clock, notes) = (sim.clock(), seen.clone());
        let handler = on::<OrderPlaced>("edge", move |ctx| {
            if ctx.meta().attempt == 1 {
                clock.pass(Duration::from_millis(used));
                ctx.ensure(paid(ctx.event.order))?;
                notes.add(ctx.commit().is_err().to_string());
            }
            Ok(())
        });
        sim.publish(OrderPlaced { order: 1 }).unwrap();
        sim.start(vec![handler], vec![]).unwrap();
        sim.run_until_idle().unwrap();
        assert_eq!(seen.all(), [refused.to_string()], "{used} ms");
        assert_eq!(sim.get::<Payment>(1_u64).unwrap().is_none(), refused);
    }
}

/// While the slow handler sleeps, another session takes over and finishes; whatever the slow handler does then changes
/// nothing.
#[test]
fn late_commits_acks_and_failures_of_a_lost_lease_change_nothing() {
    for ending in ["commits", "succeeds", "fails"] {
        let sim = simulation();
        let seen = Seen::default();
        let (slow, fast) = (sim.beside(), sim.beside());
        let notes = seen.clone();
        let quick = on::<OrderPlaced>("pay", move |ctx| {
            notes.add(format!("fast try {}", ctx.meta().attempt));
            ctx.ensure(Payment { order: 1, status: "fast".to_owned() })?;
            ctx.commit()?;
            ctx.emit(PaymentDone { order: 1 })?;
            Ok(())
        });
        let (clock, notes) = (sim.clock(), seen.clone());
        let handler = on::<OrderPlaced>("pay", move |ctx| {
            ctx.emit(PaymentDone { order: 666 })?;
            clock.pass(TOO_LONG);
            fast.start(vec![quick.clone()], vec![])?;
            fast.advance(Duration::from_secs(2))?;
            notes.add("slow ends");
            match ending {
                "commits" => {
                    ctx.ensure(Payment { order: 1, status: "slow".to_owned() })?;
                    assert!(matches!(ctx.commit(), Err(SessionError::LeaseExpired)));
                    Ok(())
                }
                "succeeds" => Ok(()),
                _ => Err("too late to fail".into()),
            }
        });
        sim.publish(OrderPlaced { order: 1 }).unwrap();
        slow.start(vec![handler], vec![]).unwrap();
        slow.run_until_idle().unwrap();
        sim.advance(Duration::from_secs(120)).unwrap();
        assert_eq!(seen.take(), ["fast try 1", "slow ends"], "{ending}");
        assert_eq!(sim.get::<Payment>(1_u64).unwrap().unwrap().status, "fast", "{ending}");
        let counter = sim.beside();
        counter.start(vec![noting::<PaymentDone>("count", &seen)], vec![]).unwrap();
        counter.run_until_idle().unwrap();
        assert_eq!(seen.take(), [r#"count {"order":1}"#], "{ending}: the late one's events are dropped");
        assert_eq!(sim.dead_letters().unwrap(), [], "{ending}");
    }
}
