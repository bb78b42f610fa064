//! The results of a handler besides success and failure, and what follows for its event.

mod desk;

use desk::*;
use millrace_claims::*;
use millrace_model::*;

fn snooze(after_ms: u64) -> Result<Vec<OutEvent>, RunError> {
    Err(RunError::Snooze { after_ms, reason: "not yet".into() })
}

fn ended(desk: &mut Desk, result: Result<Vec<OutEvent>, RunError>) -> Run {
    let run = desk.take("a");
    desk.finish("a", &run, result);
    desk.pass(10);
    run
}

#[test]
fn a_retry_comes_when_the_handler_says_and_counts() {
    let mut desk = Desk::new();
    desk.join("a", WorkerConfig { event_max_attempts: 2, ..config() }, vec![handler("m:h", "t")], Vec::new());
    desk.publish(out("t", "1"));
    let retry = || Err(RunError::RetryAfter { after_ms: 90_000, error: "busy".into() });
    ended(&mut desk, retry());
    assert_eq!(desk.claims()[0].error.as_deref(), Some("busy"));
    desk.pass(89_989);
    assert_eq!(desk.waiting("a"), 0);
    desk.pass(1);
    assert_eq!(ended(&mut desk, retry()).attempt, 2);
    assert_eq!(desk.endings(), [Ending::DeadLettered], "the last attempt is the last");
}

#[test]
fn giving_up_is_a_dead_letter_at_once() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    ended(&mut desk, Err(RunError::Hopeless("not a number".into())));
    assert_eq!((desk.endings(), desk.rows(Space::DeadLetters).len()), (vec![Ending::DeadLettered], 1));
}

#[test]
fn a_snooze_counts_no_attempt_and_loses_no_step() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    let commit = StateChanges { event: Some(out("u", "once")), ..ensure("x", r#"{"a":1}"#) };
    desk.commit_run("a", &run, commit.clone()).unwrap();
    desk.finish("a", &run, snooze(10_000));
    desk.pass(10);
    let row = desk.claims().remove(0);
    assert_eq!((row.attempts, row.snoozes, row.error.as_deref()), (0, 1, Some("snoozed: not yet")));
    assert!(desk.notes.iter().any(|note| matches!(note, Note::Snoozed { snoozes: 1, .. })));
    desk.pass(10_000);
    let again = desk.take("a");
    assert_eq!(again.attempt, 1);
    desk.commit_run("a", &again, commit).unwrap();
    desk.finish("a", &again, Ok(Vec::new()));
    desk.pass(10);
    assert_eq!((desk.payloads("u"), desk.endings()), (vec!["once".to_owned()], vec![Ending::Acked]));
}

/// Snoozing is bounded: from `event_max_snoozes` on it counts as an attempt, and the event ends.
#[test]
fn an_event_that_is_only_ever_snoozed_ends_in_a_dead_letter() {
    let mut desk = Desk::new();
    let config = WorkerConfig { event_max_snoozes: 3, event_max_attempts: 2, ..config() };
    desk.join("a", config, vec![handler("m:h", "t")], Vec::new());
    desk.publish(out("t", "1"));
    let mut attempts = Vec::new();
    while desk.endings().is_empty() {
        attempts.push(ended(&mut desk, snooze(1000)).attempt);
        desk.pass(1000);
    }
    assert_eq!(attempts, [1, 1, 1, 1, 2]);
    let (_, letter) = desk.rows(Space::DeadLetters).remove(0);
    assert!(letter.contains("snoozed 3 times already (event_max_snoozes): not yet"), "{letter}");
}

#[test]
fn a_snooze_survives_a_crash_and_a_pause_of_years_is_cut_to_one() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    ended(&mut desk, snooze(u64::MAX));
    assert_eq!(desk.claims()[0].due, START + AFTER_MS_MAX);
    desk.crash("a");
    desk.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    desk.pass(600_000);
    assert_eq!(
        (desk.waiting("b"), desk.claims()[0].due),
        (0, START + AFTER_MS_MAX),
        "it is nobody's clock that was wrong"
    );
    desk.now.wall = START + AFTER_MS_MAX;
    desk.pass(2000);
    assert_eq!(desk.take("b").attempt, 1);
}

#[test]
fn a_discarded_event_is_finished_recorded_and_counted() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    ended(&mut desk, Err(RunError::Discard { reason: "replaced".into() }));
    let (key, value) = desk.rows(Space::Finished).remove(0);
    let row = FinishedRow::decode(&key, value.as_bytes()).unwrap();
    assert_eq!((row.ending, row.error.as_deref(), row.attempts), (Ending::Discarded, Some("replaced"), 0));
    assert!(desk.claims().is_empty() && desk.rows(Space::DeadLetters).is_empty());
    assert!(desk.events(DEAD_LETTER_TOPIC).is_empty());
    assert!(desk.notes.iter().any(|note| matches!(note, Note::Discarded { .. })));
    desk.pass(6000);
    let (key, value) = desk.rows(Space::Sessions).remove(0);
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
