//! The results of a handler besides success and failure, and what follows for its event.

mod harness;

use harness::*;
use millrace_claims::*;
use millrace_model::*;

fn snooze(after_ms: u64) -> Result<Vec<OutEvent>, RunError> {
    Err(RunError::Snooze { after_ms, reason: "not yet".into() })
}

fn ended(harness: &mut Harness, result: Result<Vec<OutEvent>, RunError>) -> HandlerRun {
    let run = harness.next_run("a");
    harness.finish("a", &run, result);
    harness.pass(10);
    run
}

#[test]
fn a_retry_comes_when_the_handler_says_and_counts() {
    let mut harness = Harness::new();
    harness.join(
        "a",
        WorkerConfig { event_max_attempts: 2, ..config() },
        vec![handler("m:h", "t")],
        Vec::new(),
    );
    harness.publish(out("t", "1"));
    let retry = || Err(RunError::RetryAfter { after_ms: 90_000, error: "busy".into() });
    ended(&mut harness, retry());
    assert_eq!(harness.claims()[0].error.as_deref(), Some("busy"));
    harness.pass(89_989);
    assert_eq!(harness.waiting_runs("a"), 0);
    harness.pass(1);
    assert_eq!(ended(&mut harness, retry()).attempt, 2);
    assert_eq!(harness.endings(), [Ending::DeadLettered], "the last attempt is the last");
}

#[test]
fn giving_up_is_a_dead_letter_at_once() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    ended(&mut harness, Err(RunError::Hopeless("not a number".into())));
    assert_eq!((harness.endings(), harness.rows(Space::DeadLetters).len()), (vec![Ending::DeadLettered], 1));
}

#[test]
fn a_snooze_counts_no_attempt_and_loses_no_step() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    let commit = StateChanges { event: Some(out("u", "once")), ..ensure("x", r#"{"a":1}"#) };
    harness.commit_run("a", &run, commit.clone()).unwrap();
    harness.finish("a", &run, snooze(10_000));
    harness.pass(10);
    let row = harness.claims().remove(0);
    assert_eq!((row.attempts, row.snoozes, row.error.as_deref()), (0, 1, Some("snoozed: not yet")));
    assert!(harness.notes.iter().any(|note| matches!(note, Note::Snoozed { snoozes: 1, .. })));
    harness.pass(10_000);
    let again = harness.next_run("a");
    assert_eq!(again.attempt, 1);
    harness.commit_run("a", &again, commit).unwrap();
    harness.finish("a", &again, Ok(Vec::new()));
    harness.pass(10);
    assert_eq!((harness.payloads("u"), harness.endings()), (vec!["once".to_owned()], vec![Ending::Acked]));
}

/// Snoozing is bounded: from `event_max_snoozes` on it counts as an attempt, and the event ends.
#[test]
fn an_event_that_is_only_ever_snoozed_ends_in_a_dead_letter() {
    let mut harness = Harness::new();
    let config = WorkerConfig { event_max_snoozes: 3, event_max_attempts: 2, ..config() };
    harness.join("a", config, vec![handler("m:h", "t")], Vec::new());
    harness.publish(out("t", "1"));
    let mut attempts = Vec::new();
    while harness.endings().is_empty() {
        attempts.push(ended(&mut harness, snooze(1000)).attempt);
        harness.pass(1000);
    }
    assert_eq!(attempts, [1, 1, 1, 1, 2]);
    let (_, letter) = harness.rows(Space::DeadLetters).remove(0);
    assert!(letter.contains("snoozed 3 times already (event_max_snoozes): not yet"), "{letter}");
}

#[test]
fn a_snooze_survives_a_crash_and_a_pause_of_years_is_cut_to_one() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    ended(&mut harness, snooze(u64::MAX));
    assert_eq!(harness.claims()[0].due, START + AFTER_MS_MAX);
    harness.crash("a");
    harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    harness.pass(600_000);
    assert_eq!(
        (harness.waiting_runs("b"), harness.claims()[0].due),
        (0, START + AFTER_MS_MAX),
        "it is nobody's clock that was wrong"
    );
    harness.now.wall = START + AFTER_MS_MAX;
    harness.pass(2000);
    assert_eq!(harness.next_run("b").attempt, 1);
}

#[test]
fn a_discarded_event_is_finished_recorded_and_counted() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    ended(&mut harness, Err(RunError::Discard { reason: "replaced".into() }));
    let (key, value) = harness.rows(Space::Finished).remove(0);
    let row = FinishedRow::decode(&key, value.as_bytes()).unwrap();
    assert_eq!((row.ending, row.error.as_deref(), row.attempts), (Ending::Discarded, Some("replaced"), 0));
    assert!(harness.claims().is_empty() && harness.rows(Space::DeadLetters).is_empty());
    assert!(harness.events(DEAD_LETTER_TOPIC).is_empty());
    assert!(harness.notes.iter().any(|note| matches!(note, Note::Discarded { .. })));
    harness.pass(6000);
    let (key, value) = harness.rows(Space::Sessions).remove(0);
    let counts = SessionRow::decode(&key, value.as_bytes()).unwrap().counts;
    assert_eq!(counts, RunCounts { discarded: 1, ..RunCounts::default() });
}

/// Rows of older versions have no fields about snoozes, pauses and hanging handlers.
#[test]
fn rows_of_older_versions_are_read() {
    let claim = r#"{"generation":1,"state":"waiting","due":5,"session":null,"claimed_at":1,"attempts":2,"priority":100,"ts":1}"#;
    assert_eq!(ClaimRow::decode("k", claim.as_bytes()).unwrap().snoozes, 0);
    let handler = r#"{"topic":"t","registered":7}"#;
    assert!(!HandlerRow::decode("k", handler.as_bytes()).unwrap().paused);
    let session = SessionRow::decode("k", br#"{"started":1,"heartbeat":2}"#).unwrap();
    assert!(session.hanging.is_empty() && session.counts == RunCounts::default());
}
