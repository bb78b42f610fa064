//! Failures: backoff, dead letters, chains, and that no event is stranded.

mod harness;

use harness::*;
use millrace_claims::*;
use millrace_model::*;

#[test]
fn a_retryable_failure_is_never_stranded() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    for attempt in 1..=5 {
        assert_eq!(harness.fail("a").attempt, attempt);
        let due = harness.claims()[0].due;
        harness.pass(due.0 - harness.now.wall.0);
    }
    assert_eq!(harness.ok("a").attempt, 6);
    assert_eq!(harness.endings(), [Ending::Acked]);
}

#[test]
fn backoff_grows_is_capped_and_has_jitter() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let mut jitters = std::collections::BTreeSet::new();
    for expected in [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000] {
        harness.fail("a");
        let due = harness.claims()[0].due;
        let waits = due.0 - harness.now.wall.0;
        assert!((expected..=expected + 100).contains(&waits), "{waits} for {expected}");
        jitters.insert(waits - expected);
        harness.pass(waits - 1);
        assert_eq!(harness.waiting_runs("a"), 0, "too early");
        harness.pass(1);
    }
    assert!(jitters.len() > 3, "{jitters:?}");
}

#[test]
fn the_last_failure_makes_a_dead_letter_and_one_event_that_says_so() {
    let mut harness = Harness::new();
    let config = WorkerConfig { event_max_attempts: 3, ..config() };
    harness.join("a", config, vec![handler("m:h", "t"), handler("m:dead", "event.dead_letter")], Vec::new());
    let id = harness.publish(OutEvent { key: Some("k".into()), ..out("t", r#"{"n":1}"#) });
    for _ in 0..3 {
        harness.fail("a");
        harness.pass(5000);
    }
    let told = harness.next_run("a");
    assert_eq!((told.handler, told.event.body.lineage.depth), (1, 1));
    let expected = format!(r#"{{"attempts":3,"event_id":"{id}","handler_id":"m:h","last_error":"no luck"}}"#);
    assert_eq!(told.event.body.payload.as_str(), expected);
    assert_eq!(told.event.body.lineage.root, Some(id.clone()));
    harness.finish("a", &told, Ok(Vec::new()));
    harness.pass(120_000);
    assert_eq!(harness.waiting_runs("a"), 0, "never claimed again");
    let letters = harness.rows(Space::DeadLetters);
    let row = DeadLetterRow::decode("k", letters[0].1.as_bytes()).unwrap();
    assert_eq!((letters.len(), row.event_id, row.attempts), (1, id, 3));
    assert_eq!((row.key.as_deref(), row.payload.as_deref()), (Some("k"), Some(r#"{"n":1}"#)));
}

#[test]
fn a_failing_handler_of_dead_letters_does_not_make_more_of_them() {
    let mut harness = Harness::new();
    let config = WorkerConfig { event_max_attempts: 2, ..config() };
    harness.join("a", config, vec![handler("m:h", "t"), handler("m:dead", "event.dead_letter")], Vec::new());
    harness.publish(out("t", "1"));
    for _ in 0..20 {
        while harness.waiting_runs("a") > 0 {
            harness.fail("a");
        }
        harness.pass(2000);
    }
    assert_eq!(harness.events("event.dead_letter").len(), 1);
    assert_eq!(harness.rows(Space::DeadLetters).len(), 2);
    assert!(harness.claims().is_empty());
}

#[test]
fn a_crash_loop_ends_in_a_dead_letter() {
    let mut harness = Harness::new();
    let short = WorkerConfig { event_max_attempts: 3, ..config() };
    harness.publish(out("t", "1"));
    // The first run was marked only by its claim: it is not known whether the handler was called, so no attempt is
    // counted.
    for attempt in [1, 1, 2, 3] {
        harness.join("a", short.clone(), vec![handler("m:h", "t")], Vec::new());
        assert_eq!(harness.next_run("a").attempt, attempt);
        harness.crash("a");
        harness.pass(30_000);
    }
    harness.join("a", short, vec![handler("m:h", "t")], Vec::new());
    assert_eq!(harness.waiting_runs("a"), 0, "it must not run again");
    assert_eq!(harness.endings(), [Ending::DeadLettered]);
    assert_eq!(harness.events("event.dead_letter").len(), 1);
}

#[test]
fn hopeless_events_go_to_the_dead_letters_at_once() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    harness.publish(out("t", "2"));
    let run = harness.next_run("a");
    harness.finish("a", &run, Err(RunError::Hopeless("cannot be decoded".into())));
    assert_eq!(harness.ok("a").event.body.payload.as_str(), "2");
    assert_eq!(harness.endings(), [Ending::DeadLettered, Ending::Acked]);
}

#[test]
fn handlers_are_independent_of_one_another() {
    let mut harness = Harness::new();
    let config = WorkerConfig { event_max_attempts: 2, ..config() };
    harness.join("a", config, vec![handler("m:bad", "t"), handler("m:good", "t")], Vec::new());
    harness.publish(out("t", "1"));
    for _ in 0..2 {
        while harness.waiting_runs("a") > 0 {
            let run = harness.next_run("a");
            let result = if run.handler == 0 { failed("no") } else { Ok(Vec::new()) };
            harness.finish("a", &run, result);
        }
        harness.pass(2000);
    }
    let rows = harness.rows(Space::Finished);
    assert!(rows[0].0.ends_with("m:bad") && rows[0].1.contains("dead_lettered"), "{rows:?}");
    assert!(rows[1].0.ends_with("m:good") && rows[1].1.contains("acked"), "{rows:?}");
}

#[test]
fn emitted_events_appear_with_the_ack_and_carry_their_chain() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    let id = harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    harness.finish("a", &run, Ok(vec![out("u", "1"), out("u", "2")]));
    let events = harness.events("u");
    assert_eq!(harness.payloads("u"), ["1", "2"]);
    assert_eq!(events[0].body.lineage.root, Some(id.clone()));
    assert_eq!((events[0].body.lineage.depth, &events[0].body.lineage.causation), (1, &Some(id)));
    assert!(
        harness.rows(Space::Topics).iter().any(|(key, _)| key == "default/u"),
        "the bus must know the topic"
    );
}

#[test]
fn events_emitted_by_a_run_that_fails_are_discarded() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    harness.fail("a");
    harness.pass(2000);
    assert!(harness.events("u").is_empty());
}

#[test]
fn a_chain_ends_at_its_depth_visibly() {
    let mut harness = Harness::new();
    let config = WorkerConfig { max_event_chain_depth: 3, event_max_attempts: 1, ..config() };
    harness.join("a", config, vec![handler("m:loop", "t")], Vec::new());
    harness.publish(out("t", "0"));
    let mut runs = 0;
    while harness.waiting_runs("a") > 0 {
        let run = harness.next_run("a");
        runs += 1;
        harness.finish("a", &run, Ok(vec![out("t", "again")]));
        harness.pass(1500);
    }
    assert_eq!(runs, 4);
    let letter = &harness.rows(Space::DeadLetters)[0].1;
    assert!(letter.contains("max_event_chain_depth"), "{letter}");
    assert!(harness.events("event.dead_letter").is_empty(), "the limit holds for these events too");
}

#[test]
fn a_commit_beyond_the_depth_spoils_the_run_even_if_the_handler_ignores_it() {
    let mut harness = Harness::new();
    let config = WorkerConfig { max_event_chain_depth: 0, ..config() };
    harness.join("a", config, vec![handler("m:h", "t")], Vec::new());
    harness.publish(out("t", "0"));
    let run = harness.next_run("a");
    let refused =
        harness.commit_run("a", &run, StateChanges { event: Some(out("u", "1")), ..ensure("x", "{}") });
    assert_eq!(refused, Err(CommitError::EventLoopLimit { depth: 1, limit: 0 }));
    harness.finish("a", &run, Ok(Vec::new()));
    assert!(harness.endings().is_empty() && harness.claims()[0].attempts == 1);
    assert!(harness.rows(Space::Heads).is_empty());
}

#[test]
fn retries_left_by_a_worker_that_is_gone_come_on_time_without_polling() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    harness.publish(out("t", "2"));
    harness.fail("a");
    harness.pass(config().ack_linger_ms);
    let due = harness.claims()[0].due;
    harness.crash("a");
    let alone = WorkerConfig { alone: true, ..config() };
    harness.join("b", alone, vec![handler("m:h", "t")], Vec::new());
    harness.pass(due.0 - harness.now.wall.0);
    assert_eq!(harness.ok("b").attempt, 2);
    harness.pass(30_000);
    assert_eq!(harness.ok("b").attempt, 1, "the other lease has run out, under a run that no row tells of");
}
