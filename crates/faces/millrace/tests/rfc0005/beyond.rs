//! Requirements beyond the 17 points of the source document.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace::{Config, Handler, Session, SessionError, Simulation};

use crate::words::*;

#[test]
fn two_intents_for_one_key_are_one_and_the_last_wins() {
    let sim = simulation();
    sim.ensure(Payment { order: 1, status: "begun".to_owned() }).unwrap();
    sim.ensure(vec![paid(2), paid(1)]).unwrap();
    assert_eq!(sim.commit().unwrap(), Some(1));
    assert_eq!(sim.list_commit_changes(1).unwrap().len(), 2);
    assert_eq!(sim.get::<Payment>(1_u64).unwrap().unwrap().status, "completed");
    assert_eq!(sim.query::<Payment>().count().unwrap(), 2);
}

#[test]
fn too_many_intents_are_refused_whole_and_kept() {
    let session = Session::open("memory:").unwrap();
    session.ensure((0..10_001).map(paid)).unwrap();
    for _ in 0..2 {
        let refused = session.commit_with(PaymentDone { order: 1 });
        assert!(
            matches!(refused, Err(SessionError::BatchSizeExceeded { count: 10_001, limit: 10_000 })),
            "{refused:?}"
        );
        assert_eq!(session.query::<Payment>().count().unwrap(), 0);
    }
    // Declaring an identity again replaces the queued intent. The count stays 10,001, so the commit is refused again.
    session.ensure(paid(0)).unwrap();
    assert!(session.commit().is_err());
    let roomy =
        session.to_builder().config(Config { max_batch_size: 10_001, ..Config::default() }).open().unwrap();
    roomy.ensure((0..10_001).map(paid)).unwrap();
    assert_eq!(roomy.commit().unwrap(), Some(1));
    assert_eq!(session.query::<Payment>().count().unwrap(), 10_001);
}

#[test]
fn a_handler_may_split_what_was_too_much() {
    let sim =
        simulation().to_builder().config(Config { max_batch_size: 3, ..Config::default() }).open().unwrap();
    let handler = on::<Ping>("splits", |ctx| {
        ctx.ensure((0..4).map(paid))?;
        assert!(matches!(ctx.commit(), Err(SessionError::BatchSizeExceeded { count: 4, limit: 3 })));
        // The refused intents are still queued. Retracting one leaves three changes and one that changes nothing, but
        // four identities.
        ctx.retract::<Payment>(3_u64)?;
        assert!(ctx.commit().is_err());
        Err("four identities are four".into())
    });
    sim.publish(Ping { n: 1 }).unwrap();
    sim.start(vec![handler], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(sim.query::<Payment>().count().unwrap(), 0);
}

#[test]
fn what_is_retracted_is_gone_and_its_history_stays() {
    let sim = simulation();
    sim.ensure(paid(1)).unwrap();
    sim.commit().unwrap();
    sim.retract::<Payment>(1_u64).unwrap();
    assert_eq!(sim.commit().unwrap(), Some(2));
    assert_eq!(sim.get::<Payment>(1_u64).unwrap(), None);
    assert!(sim.state().get_as_of::<Payment>(1_u64, millrace::StateCommit(1)).unwrap().is_some());
    sim.retract::<Payment>(1_u64).unwrap();
    assert_eq!(sim.commit().unwrap(), None, "there is nothing to take away");
}

/// A session starts again with the same id while an old call of its handler still hangs: the old call cannot write,
/// whatever the new one does.
#[test]
fn a_worker_that_reuses_an_id_is_somebody_else() {
    let sim = simulation();
    let seen = Seen::default();
    let notes = seen.clone();
    let new = on::<OrderPlaced>("pay", move |ctx| {
        notes.add(format!("new {}", ctx.meta().attempt));
        ctx.ensure(Payment { order: 1, status: "new".to_owned() })?;
        ctx.commit()?;
        Ok(())
    });
    let (again, clock, notes) = (sim.clone(), sim.clock(), seen.clone());
    let old = on::<OrderPlaced>("pay", move |ctx| {
        let id = again.id().clone();
        clock.pass(Duration::from_secs(31));
        again.start(vec![new.clone()], vec![])?;
        again.run_until_idle()?;
        assert_eq!(again.id(), &id);
        ctx.ensure(Payment { order: 1, status: "old".to_owned() })?;
        notes.add(format!("old {}", ctx.commit().is_err()));
        Ok(())
    });
    sim.publish(OrderPlaced { order: 1 }).unwrap();
    sim.start(vec![old], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    sim.advance(Duration::from_secs(120)).unwrap();
    assert_eq!(seen.all(), ["new 1", "old true"]);
    assert_eq!(sim.get::<Payment>(1_u64).unwrap().unwrap().status, "new");
}

/// How a call of the handler below ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Fails,
    Panics,
    /// The handler succeeds, but its session crashes before the acknowledgement.
    Crashes,
    Succeeds,
}

/// Failures of all kinds, at random moments, over many sessions that come and go: in the end every event was handled
/// and acknowledged once, and no event was retried without a reason. In a simulation an acknowledgement is durable
/// before the next handler is called, so a crash loses only the acknowledgement of the call that it interrupts; in real
/// time a crash may lose those of the last `ack_linger_ms`.
#[test]
fn a_retryable_failure_is_never_stranded() {
    const EVENTS: u64 = 50;
    let sim = simulation()
        .to_builder()
        .config(Config { event_max_attempts: 1000, ..Config::default() })
        .open()
        .unwrap();
    let calls = Arc::new(Mutex::new(vec![Vec::<(u32, Call)>::new(); EVENTS as usize]));
    sim.publish_all((0..EVENTS).map(|n| Ping { n })).unwrap();
    let handler = |session: &Simulation, ends: fn(u64) -> Call, round: u64| {
        let (calls, crashing) = (calls.clone(), session.clone());
        on::<Ping>("shaky", move |ctx| {
            let (n, attempt) = (ctx.event.n, ctx.meta().attempt);
            let call = ends(n * 7 + round * 13 + u64::from(attempt));
            calls.lock().unwrap()[n as usize].push((attempt, call));
            match call {
                Call::Fails => return Err("fails".into()),
                Call::Panics => panic!("panics"),
                Call::Crashes => crashing.crash(),
                Call::Succeeds => {}
            }
            Ok(())
        })
    };
    for round in 0..20 {
        let session = sim.beside();
        let ends = |drawn: u64| match drawn % 5 {
            0 => Call::Fails,
            1 => Call::Panics,
            2 => Call::Crashes,
            _ => Call::Succeeds,
        };
        session.start(vec![handler(&session, ends, round)], vec![]).unwrap();
        session.advance(Duration::from_secs(20)).unwrap();
        session.stop().unwrap();
    }
    let last = sim.beside();
    last.start(vec![handler(&last, |_| Call::Succeeds, 0)], vec![]).unwrap();
    // An acknowledged event never comes again: a day is longer than every lease and every backoff.
    last.advance(Duration::from_secs(24 * 3600)).unwrap();
    let calls = calls.lock().unwrap();
    let crashes = calls.iter().flatten().filter(|(_, call)| *call == Call::Crashes).count();
    assert!(crashes > 0);
    for (n, calls) in calls.iter().enumerate() {
        let successes = calls.iter().filter(|(_, call)| *call == Call::Succeeds).count();
        let ended = calls.last().map(|(_, call)| *call);
        assert_eq!((successes, ended), (1, Some(Call::Succeeds)), "event {n}: {calls:?}");
        // A crash before the start of the run is recorded does not count as an attempt.
        let follows = |a: &(u32, Call), b: &(u32, Call)| a.0 < b.0 || (a.0 == b.0 && a.1 == Call::Crashes);
        assert!(calls.is_sorted_by(follows), "event {n}: an attempt counts once: {calls:?}");
        // Events that were only queued in a session that crashed lose no attempt.
        let (runs, attempts) = (calls.len(), calls.last().map_or(0, |(attempt, _)| *attempt as usize));
        assert!(attempts <= runs, "event {n}: {calls:?}");
    }
    assert_eq!(sim.dead_letters().unwrap(), []);
}

#[test]
fn a_panic_is_a_failure_and_its_message_the_error() {
    let sim = simulation()
        .to_builder()
        .config(Config { event_max_attempts: 1, ..Config::default() })
        .open()
        .unwrap();
    sim.publish(Ping { n: 3 }).unwrap();
    sim.publish(OrderPlaced { order: 3 }).unwrap();
    let handlers = vec![
        on::<Ping>("plain", |ctx| panic!("number {} is unlucky", ctx.event.n)),
        Handler::from_async_fn::<OrderPlaced>("async", |_| Box::pin(async { panic!("async too") })),
    ];
    sim.start(handlers, vec![]).unwrap();
    sim.run_until_idle().unwrap();
    let mut errors: Vec<_> = sim.dead_letters().unwrap().into_iter().map(|dead| dead.error).collect();
    errors.sort();
    assert_eq!(errors, ["panicked: async too", "panicked: number 3 is unlucky"]);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let sim = Session::open_simulated(seed);
        let seen = Seen::default();
        let notes = seen.clone();
        let handler = on::<Ping>("fails", move |ctx| {
            notes.add(format!("{} {} {}", ctx.meta().id, ctx.event.n, ctx.now()));
            Err("always".into())
        });
        sim.publish_all((0..5).map(|n| Ping { n })).unwrap();
        sim.start(vec![handler], vec![]).unwrap();
        sim.advance(Duration::from_secs(60)).unwrap();
        seen.all()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_new_handler_may_begin_with_what_comes() {
    let sim = simulation();
    let seen = Seen::default();
    sim.publish(Ping { n: 1 }).unwrap();
    sim.start(vec![noting::<Ping>("fresh", &seen).starting(millrace::Start::Now)], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    sim.publish(Ping { n: 2 }).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(seen.all(), [r#"fresh {"n":2}"#]);
}

#[test]
fn lease_renewal_lets_slow_handlers_finish() {
    // This test uses real time: only a separate thread can renew the lease while the handler is busy.
    let config = Config { event_claim_lease_ms: 200, lease_renewal: true, ..Config::default() };
    let session = Session::builder("memory:").config(config).open().unwrap();
    session.publish(OrderPlaced { order: 1 }).unwrap();
    let seen = Seen::default();
    let notes = seen.clone();
    let handler = on::<OrderPlaced>("slow", move |ctx| {
        std::thread::sleep(Duration::from_millis(700));
        ctx.ensure(paid(1))?;
        notes.add(format!("{:?}", ctx.commit()?));
        Ok(())
    });
    session.run_until_idle(vec![handler], vec![]).unwrap();
    assert_eq!(seen.all(), ["Some(1)"]);
}
