//! Settings of single handlers: which of them win, what they limit, and what is refused.

mod harness;

use std::collections::BTreeMap;

use harness::*;
use millrace_claims::*;
use millrace_model::*;

fn with(settings: HandlerSettings) -> HandlerSpec {
    HandlerSpec { settings, ..handler("m:h", "t") }
}

fn settings() -> HandlerSettings {
    HandlerSettings::default()
}

fn made(config: WorkerConfig, spec: HandlerSpec) -> Result<Worker, SpecError> {
    Worker::new(config, identity("a"), vec![spec], Vec::new(), 1)
}

#[test]
fn the_configuration_wins_setting_by_setting() {
    let said = HandlerSettings { max_attempts: Some(5), backoff_base_ms: Some(7), ..settings() };
    let wins = HandlerSettings { max_attempts: Some(2), ..settings() };
    let config = WorkerConfig { handlers: BTreeMap::from([("m:h".to_owned(), wins)]), ..config() };
    let mut harness = Harness::new();
    harness.join("a", config, vec![with(said)], Vec::new());
    harness.publish(out("t", "1"));
    harness.fail("a");
    harness.pass(0);
    let due = harness.claims()[0].due.0 - START.0;
    assert!((14..14 + 101).contains(&due), "its own base, doubled: {due}");
    harness.pass(200);
    harness.fail("a");
    assert_eq!(harness.endings(), [Ending::DeadLettered]);
}

#[test]
fn handlers_have_attempts_backoff_and_leases_of_their_own() {
    let mut harness = Harness::new();
    let own = HandlerSettings {
        max_attempts: Some(3),
        backoff_base_ms: Some(1000),
        backoff_max_ms: Some(1500),
        lease_ms: Some(90_000),
        ..settings()
    };
    harness.join("a", config(), vec![with(own), handler("m:other", "t")], Vec::new());
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    assert_eq!((run.handler, run.lease_until), (0, START + 90_000));
    harness.finish("a", &run, failed("no"));
    let other = harness.next_run("a");
    assert_eq!(other.lease_until, START + 30_000);
    harness.finish("a", &other, Ok(Vec::new()));
    harness.pass(1499);
    assert_eq!(harness.waiting_runs("a"), 0);
    harness.pass(102);
    assert_eq!(harness.fail("a").attempt, 2);
    harness.pass(1601);
    assert_eq!(harness.fail("a").attempt, 3);
    assert!(harness.endings().contains(&Ending::DeadLettered));
}

#[test]
fn a_handler_has_no_more_runs_at_once_than_it_says_and_holds_up_nobody() {
    let mut harness = Harness::new();
    let config = WorkerConfig { handler_concurrency: 4, ..config() };
    let one = HandlerSettings { concurrency: Some(1), ..settings() };
    harness.join("a", config, vec![with(one), handler("m:other", "u")], Vec::new());
    for n in 0..3 {
        harness.publish(out("t", &n.to_string()));
        harness.publish(out("u", &n.to_string()));
    }
    let runs: Vec<usize> = harness.runs["a"].iter().map(|run| run.handler).collect();
    assert_eq!((runs.iter().filter(|at| **at == 0).count(), runs.len()), (1, 4), "{runs:?}");
    assert_eq!(harness.pass_working(100), 6);
    assert_eq!(harness.endings(), [Ending::Acked; 6]);
}

#[test]
fn runs_begin_no_faster_than_the_rate() {
    let mut harness = Harness::new();
    let rate = HandlerSettings { rate_per_s: Some(2.0), ..settings() };
    harness.join("a", WorkerConfig { handler_concurrency: 8, ..config() }, vec![with(rate)], Vec::new());
    for n in 0..5 {
        harness.publish(out("t", &n.to_string()));
    }
    assert_eq!(harness.pass_working(499), 1);
    assert_eq!(harness.pass_working(1), 1);
    assert_eq!(harness.pass_working(1500), 3);
    assert_eq!(harness.endings(), [Ending::Acked; 5]);
    // Unused time is not made up for.
    harness.pass(60_000);
    harness.publish(out("t", "6"));
    harness.publish(out("t", "7"));
    assert_eq!((harness.pass_working(499), harness.pass_working(1)), (1, 1));
}

/// The handler leaves events that it cannot begin within its lease to other sessions, and no attempt is lost.
#[test]
fn a_slow_rate_does_not_hoard_events() {
    let mut harness = Harness::new();
    let rate = HandlerSettings { rate_per_s: Some(0.1), ..settings() };
    harness.join("a", config(), vec![with(rate)], Vec::new());
    for n in 0..20 {
        harness.publish(out("t", &n.to_string()));
    }
    assert!(harness.claims().len() <= 1, "{}", harness.claims().len());
    assert_eq!(harness.pass_working(190_000), 20);
    let finished = harness.rows(Space::Finished);
    assert!(finished.iter().all(|(_, row)| row.contains(r#""attempts":0"#)), "{finished:?}");
}

#[test]
fn a_paused_handler_claims_nothing_loses_nothing_and_holds_up_nobody() {
    let mut harness = Harness::new();
    let paused = HandlerSettings { paused: Some(true), ..settings() };
    let retaining = WorkerConfig {
        retention_interval_ms: 1000,
        event_retention_ms: 5000,
        session_ttl_ms: 5000,
        clock_settle_ms: 0,
        ..config()
    };
    let others = [handler("m:other", "t"), handler("m:third", "u")];
    harness.join("a", retaining.clone(), [&[with(paused)], &others[..]].concat(), Vec::new());
    harness.publish(out("t", "1"));
    harness.publish(out("u", "1"));
    assert_eq!([harness.ok("a").handler, harness.ok("a").handler], [1, 2]);
    harness.pass(50);
    assert!(harness.workers["a"].is_idle());
    harness.pass(60_000);
    let kept = [harness.events("t").len(), harness.events("u").len()];
    assert_eq!(
        (harness.waiting_runs("a"), kept),
        (0, [1, 0]),
        "kept for the one that is paused, and for nobody else"
    );
    // The next version of the program does not pause the handler.
    harness.crash("a");
    harness.join("b", retaining, [&[with(settings())], &others[..]].concat(), Vec::new());
    assert_eq!(harness.ok("b").handler, 0);
}

#[test]
fn a_handler_is_paused_from_outside_and_gives_back_what_it_has_not_begun() {
    let mut harness = Harness::new();
    harness.join("a", config(), vec![handler("m:h", "t")], Vec::new());
    harness.publish(out("t", "1"));
    harness.publish(out("t", "2"));
    let switch = |harness: &mut Harness, paused| {
        let (key, value) = harness.rows(Space::Handlers).remove(0);
        assert_eq!(key, "default/m:h");
        let id = HandlerId::new("m:h").unwrap();
        let batch =
            set_handler_paused(&Namespace::default(), &id, &value.into(), paused, harness.now.wall, 99)
                .unwrap();
        millrace_store::Store::commit(&harness.store, &[batch]).unwrap();
    };
    switch(&mut harness, true);
    harness.pass(6000);
    assert!(harness.notes.contains(&Note::Paused { handler: 0, paused: true }), "{:?}", harness.notes);
    harness.ok("a");
    harness.pass(60_000);
    assert_eq!(
        (harness.waiting_runs("a"), harness.endings().len()),
        (0, 1),
        "what ran has ended, nothing else began"
    );
    assert_eq!(harness.claims().iter().map(|row| row.attempts).collect::<Vec<_>>(), [0]);
    switch(&mut harness, false);
    harness.pass(6000);
    assert_eq!(harness.ok("a").attempt, 1);
}

#[test]
fn a_lease_covers_the_timeout() {
    // Without a `lease_ms` of its own, the lease is long enough for an event that waited in the queue, too.
    let mut harness = Harness::new();
    let long = HandlerSettings { timeout_ms: Some(60_000), ..settings() };
    harness.join("a", config(), vec![with(long.clone())], Vec::new());
    harness.publish(out("t", "1"));
    assert_eq!(harness.next_run("a").lease_until, START + 120_000);

    let short = HandlerSettings { lease_ms: Some(59_999), ..long.clone() };
    let error = made(config(), with(short.clone())).unwrap_err();
    assert_eq!(
        error,
        SpecError::LeaseBelowTimeout { handler: "m:h".into(), lease_ms: 59_999, timeout_ms: 60_000 }
    );
    assert!(error.to_string().contains("raise lease_ms"), "{error}");
    assert!(made(config(), with(HandlerSettings { lease_ms: Some(60_000), ..long })).is_ok());
    let renewing = WorkerConfig { lease_renewal: true, ..config() };
    assert!(made(renewing, with(short)).is_ok(), "a lease that is renewed lasts as long as it must");
}

#[test]
fn settings_that_mean_nothing_are_refused_and_name_the_handler() {
    let zero = HandlerSettings { concurrency: Some(0), ..settings() };
    let error = made(config(), with(zero)).unwrap_err().to_string();
    assert_eq!(error, "handler \"m:h\": concurrency is 0: give at least 1");
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e6] {
        let error =
            made(config(), with(HandlerSettings { rate_per_s: Some(rate), ..settings() })).unwrap_err();
        assert!(matches!(error, SpecError::Rate { .. }), "{rate}: {error}");
    }
    let config = WorkerConfig { handler_timeout_ms: Some(0), ..config() };
    assert!(matches!(made(config, with(settings())), Err(SpecError::Zero { name: "handler_timeout_ms" })));
}

#[test]
fn settings_for_a_handler_that_is_not_there_are_told() {
    let handlers = BTreeMap::from([("m:typo".to_owned(), settings())]);
    let mut harness = Harness::new();
    harness.join("a", WorkerConfig { handlers, ..config() }, vec![handler("m:h", "t")], Vec::new());
    assert!(harness.notes.contains(&Note::UnusedSettings { id: "m:typo".into() }), "{:?}", harness.notes);
}
