//! Beyond the source document: limits of single handlers and the outcomes that handlers may return, through macro,
//! configuration and session, on virtual time.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use millrace::{
    Config, HandlerContext, HandlerOrder, HandlerOutcome, HandlerResult, HandlerSettings, OutcomeExt,
    SessionError, SpecError, handlers, on_event,
};

use crate::words::*;

const SECOND: Duration = Duration::from_secs(1);

#[on_event(
    Ping,
    id = "limited",
    timeout_ms = 5_000,
    max_attempts = 2,
    backoff_base_ms = 10,
    backoff_max_ms = 100,
    concurrency = 3,
    rate_per_s = 0.5,
    lease_ms = 20_000,
    paused = true,
    order = "key"
)]
fn limited(_ctx: &mut HandlerContext<Ping>) {}

#[test]
fn the_macro_writes_the_settings_down() {
    let handlers = handlers![limited];
    let expected = HandlerSettings {
        timeout_ms: Some(5000),
        max_attempts: Some(2),
        backoff_base_ms: Some(10),
        backoff_max_ms: Some(100),
        concurrency: Some(3),
        rate_per_s: Some(0.5),
        lease_ms: Some(20_000),
        paused: Some(true),
        order: Some(HandlerOrder::Key),
    };
    assert_eq!(handlers[0].settings, expected);
}

/// The macro pauses the handler; the configuration resumes it.
#[test]
fn the_configuration_wins_over_the_macro() {
    let sim = simulation();
    let published = sim.publish(Ping { n: 1 }).unwrap();
    sim.start(handlers![limited], vec![]).unwrap();
    sim.advance(Duration::from_secs(3600)).unwrap();
    assert_eq!(sim.sessions().unwrap()[0].1.counts.succeeded, 0, "{published:?}");
    let settings = HandlerSettings { paused: Some(false), ..HandlerSettings::default() };
    let handlers = BTreeMap::from([("limited".to_owned(), settings)]);
    let going = sim.to_builder().config(Config { handlers, ..Config::default() }).open().unwrap();
    going.start(handlers![limited], vec![]).unwrap();
    going.advance(60 * SECOND).unwrap();
    let counts = |id: &millrace::SessionId| {
        let sessions = going.sessions().unwrap();
        sessions.into_iter().find(|(found, _)| found == id).unwrap().1.counts.succeeded
    };
    assert_eq!((counts(sim.id()), counts(going.id())), (0, 1));
}

/// A run that exceeds its timeout has failed, whatever it returns afterwards, and cannot commit.
#[test]
fn a_handler_that_is_too_late_writes_nothing_and_is_tried_again() {
    let sim = simulation();
    let seen = Seen::default();
    let (clock, notes) = (sim.clock(), seen.clone());
    let slow_once = on::<OrderPlaced>("slow", move |ctx| {
        let attempt = ctx.meta().attempt;
        ctx.emit(PaymentDone { order: ctx.event.order })?;
        ctx.ensure(Payment { order: ctx.event.order, status: format!("try {attempt}") })?;
        if attempt == 1 {
            clock.pass(5 * SECOND);
            let refused = ctx.commit();
            assert!(matches!(refused, Err(SessionError::TimedOut { timeout_ms: 5000 })), "{refused:?}");
        } else {
            ctx.commit()?;
        }
        notes.add(format!("slow {attempt}"));
        Ok(())
    })
    .with_settings(HandlerSettings { timeout_ms: Some(5000), ..HandlerSettings::default() });
    sim.publish(OrderPlaced { order: 1 }).unwrap();
    sim.start(vec![slow_once, noting::<PaymentDone>("payments", &seen)], vec![]).unwrap();
    sim.advance(10 * SECOND).unwrap();
    assert_eq!(seen.take(), ["slow 1", "slow 2", r#"payments {"order":1}"#]);
    assert_eq!(sim.get::<Payment>(1_u64).unwrap().unwrap().status, "try 2");
}

/// At its timeout an async handler is dropped at the `await` where it waits: the code after that never runs.
#[test]
fn an_async_handler_is_cut_off_where_it_waits() {
    #[on_event(Ping, id = "waits", timeout_ms = 20, max_attempts = 2)]
    async fn waits(ctx: &mut HandlerContext<Ping>) -> HandlerResult {
        std::future::pending::<()>().await;
        ctx.emit(PaymentDone { order: 1 })?;
        Ok(())
    }
    let sim = simulation();
    let seen = Seen::default();
    sim.publish(Ping { n: 1 }).unwrap();
    sim.start([handlers![waits], vec![noting::<PaymentDone>("payments", &seen)]].concat(), vec![]).unwrap();
    sim.advance(60 * SECOND).unwrap();
    let dead = sim.dead_letters().unwrap();
    assert_eq!((dead.len(), dead[0].attempts, dead[0].error.as_str()), (1, 2, "no answer within 20 ms"));
    assert_eq!(seen.len(), 0);
}

#[test]
fn handlers_say_what_becomes_of_their_event() {
    /// Written as `thiserror` would generate it, with `#[from]` and `#[source]`.
    #[derive(Debug)]
    enum Failure {
        Bank(HandlerOutcome),
        Session(SessionError),
    }
    impl fmt::Display for Failure {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the bank did not answer")
        }
    }
    impl Error for Failure {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            match self {
                Failure::Bank(outcome) => Some(outcome),
                Failure::Session(error) => Some(error),
            }
        }
    }
    impl From<HandlerOutcome> for Failure {
        fn from(outcome: HandlerOutcome) -> Failure {
            Failure::Bank(outcome)
        }
    }
    impl From<SessionError> for Failure {
        fn from(error: SessionError) -> Failure {
            Failure::Session(error)
        }
    }

    /// Returns the outcome inside an error type of its own.
    #[on_event(Ping, id = "own")]
    fn own(ctx: &mut HandlerContext<Ping>) -> Result<(), Failure> {
        ctx.emit(PaymentDone { order: ctx.event.n })?;
        let closed: Result<(), HandlerOutcome> = Err(HandlerOutcome::discard("closed for good"));
        Ok(closed?)
    }

    /// Returns the outcome as a value.
    #[on_event(Ping, id = "value")]
    async fn value(ctx: &mut HandlerContext<Ping>) -> Result<HandlerOutcome, std::num::ParseIntError> {
        Ok(if ctx.meta().attempt > 2 {
            HandlerOutcome::Done
        } else {
            HandlerOutcome::retry_after(90 * SECOND, "busy")
        })
    }

    /// Returns the outcome by `or_give_up` on a result.
    #[on_event(Ping, id = "word")]
    fn word(_ctx: &mut HandlerContext<Ping>) -> HandlerResult {
        let _: u64 = "seven".parse().or_give_up()?;
        Ok(())
    }

    let sim = simulation();
    let seen = Seen::default();
    let opens = sim.now() + 3_600_000;
    let notes = seen.clone();
    let snoozing = on::<Ping>("snoozing", move |ctx| {
        notes.add(format!("attempt {}", ctx.meta().attempt));
        let left_ms = opens.0.saturating_sub(ctx.now().0);
        if left_ms > 0 {
            let after = Duration::from_millis(left_ms.min(1_000_000));
            return Err(HandlerOutcome::snooze(after, "closed").into());
        }
        Ok(())
    });
    sim.publish(Ping { n: 1 }).unwrap();
    let payments = noting::<PaymentDone>("payments", &seen);
    sim.start([handlers![own, value, word], vec![snoozing, payments]].concat(), vec![]).unwrap();
    sim.advance(Duration::from_secs(2 * 3600)).unwrap();

    assert_eq!(seen.take(), ["attempt 1"; 5], "snoozed four times, and nobody was paid");
    let dead = sim.dead_letters().unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].handler.as_str(), dead[0].attempts), ("word", 1));
    assert_eq!(dead[0].error, "invalid digit found in string");
    let counts = sim.sessions().unwrap()[0].1.counts;
    assert_eq!((counts.succeeded, counts.discarded, counts.snoozed), (2, 1, 4));
    assert_eq!((counts.failed, counts.dead_lettered), (2, 1));
}

#[test]
fn a_lease_below_the_timeout_is_refused_before_anything_runs() {
    let short =
        HandlerSettings { timeout_ms: Some(2000), lease_ms: Some(1000), ..HandlerSettings::default() };
    let handler = on::<Ping>("short", |_| Ok(())).with_settings(short);
    let refused = simulation().start(vec![handler], vec![]);
    assert!(matches!(refused, Err(SessionError::Spec(SpecError::LeaseBelowTimeout { .. }))), "{refused:?}");
}

#[test]
fn a_rate_spaces_runs_out() {
    let sim = simulation();
    let seen = Seen::default();
    let (clock, notes) = (sim.clock(), seen.clone());
    let began = clock.now();
    let slow = on::<Ping>("slow", move |_| {
        notes.add((clock.now().0 - began.0).to_string());
        Ok(())
    })
    .with_settings(HandlerSettings { rate_per_s: Some(0.1), ..HandlerSettings::default() });
    sim.publish_all((1..=4).map(|n| Ping { n })).unwrap();
    sim.start(vec![slow], vec![]).unwrap();
    sim.advance(60 * SECOND).unwrap();
    assert_eq!(seen.take(), ["0", "10000", "20000", "30000"]);
}
