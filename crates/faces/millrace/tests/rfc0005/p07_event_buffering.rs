//! 7. Emitted events are published when the handler succeeds, and not otherwise.

use std::time::Duration;

use millrace::{Handler, HandlerContext, HandlerResult};

use crate::words::*;

/// Returns how many of the events are published that the handler emits at its first attempt, which ends by `ending`.
fn emitted(
    ending: impl Fn(&mut HandlerContext<OrderPlaced>) -> HandlerResult + Send + Sync + 'static,
) -> usize {
    let sim = simulation();
    let seen = Seen::default();
    let handler: Handler = on::<OrderPlaced>("emits", move |ctx| {
        if ctx.meta().attempt > 1 {
            return Ok(());
        }
        ctx.emit(PaymentDone { order: 1 })?;
        ctx.emit(PaymentDone { order: 2 })?;
        ending(ctx)
    });
    sim.publish(OrderPlaced { order: 1 }).unwrap();
    sim.start(vec![handler, noting::<PaymentDone>("payments", &seen)], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    let at_once = seen.len();
    sim.advance(Duration::from_secs(300)).unwrap();
    assert_eq!(seen.len(), at_once, "nothing comes later");
    at_once
}

#[test]
fn all_of_them_when_the_handler_succeeds() {
    assert_eq!(emitted(|_| Ok(())), 2);
}

#[test]
fn none_when_it_fails() {
    assert_eq!(emitted(|_| Err("no".into())), 0);
}

#[test]
fn none_when_it_panics() {
    assert_eq!(emitted(|_| panic!("on purpose")), 0);
}

#[test]
fn none_when_a_commit_fails_even_if_the_handler_goes_on() {
    #[derive(millrace::Entity, serde::Serialize, serde::Deserialize)]
    #[entity(name = "Payment")]
    struct Drifted {
        #[key]
        order: u64,
    }
    let outcome = emitted(|ctx| {
        ctx.ensure(paid(1))?;
        ctx.commit()?;
        ctx.ensure(Drifted { order: 1 })?;
        assert!(ctx.commit().is_err());
        Ok(())
    });
    assert_eq!(outcome, 0);
}

#[test]
fn none_when_the_lease_ran_out() {
    let sim = simulation();
    let clock = sim.clock();
    let seen = Seen::default();
    let handler = on::<OrderPlaced>("emits", move |ctx| {
        if ctx.meta().attempt == 1 {
            ctx.emit(PaymentDone { order: 1 })?;
            clock.pass(Duration::from_secs(31));
        }
        Ok(())
    });
    sim.publish(OrderPlaced { order: 1 }).unwrap();
    sim.start(vec![handler, noting::<PaymentDone>("payments", &seen)], vec![]).unwrap();
    sim.advance(Duration::from_secs(300)).unwrap();
    assert_eq!(seen.all(), Vec::<String>::new());
}
