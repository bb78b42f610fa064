//! Runs that do not end: cut off in time, fenced from then on, their slots replaced up to a limit; a stop does not
//! wait for them for ever.

mod harness;

use harness::*;
use millrace_claims::*;
use millrace_model::*;

fn limited(id: &str, topic: &str, timeout_ms: u64) -> HandlerSpec {
    let settings = HandlerSettings { timeout_ms: Some(timeout_ms), ..HandlerSettings::default() };
    HandlerSpec { settings, ..handler(id, topic) }
}

fn session(harness: &Harness) -> SessionRow {
    let (key, value) = harness.rows(Space::Sessions).remove(0);
    SessionRow::decode(&key, value.as_bytes()).expect("a row of a session")
}

#[test]
fn a_run_that_does_not_answer_has_failed_and_is_tried_again_without_it() {
    let mut harness = Harness::with(vec![limited("m:h", "t", 1000)]);
    harness.publish(out("t", "1"));
    let first = harness.next_run("a");
    assert_eq!(first.timeout_ms, Some(1000));
    harness.pass(999);
    assert!(harness.cuts.is_empty() && harness.notes.is_empty());
    harness.pass(1);
    assert_eq!(harness.cuts, [first.run]);
    let row = harness.claims().remove(0);
    assert_eq!(
        (row.state, row.attempts, row.error.as_deref()),
        (ClaimState::Waiting, 1, Some("no answer within 1000 ms"))
    );
    assert!(
        harness
            .notes
            .iter()
            .any(|note| matches!(note, Note::TimedOut { timeout_ms: 1000, replaced: true, .. }))
    );
    // The retry gets the only slot of the session: the slot has been replaced.
    harness.pass(1000);
    assert_eq!(harness.ok("a").attempt, 2);
    assert_eq!(harness.endings(), [Ending::Acked]);
}

#[test]
fn what_a_run_says_after_its_timeout_changes_nothing() {
    for late in ["succeeds", "fails", "commits"] {
        let mut harness = Harness::with(vec![limited("m:h", "t", 1000)]);
        harness.publish(out("t", "1"));
        let first = harness.next_run("a");
        harness.pass(1000);
        let before = harness.rows(Space::Claims);
        match late {
            "succeeds" => harness.finish("a", &first, Ok(vec![out("u", "lost")])),
            "fails" => harness.finish("a", &first, failed("too late to fail")),
            _ => {
                let refused = harness.commit_run("a", &first, ensure("x", r#"{"a":1}"#));
                assert_eq!(refused, Err(CommitError::TimedOut { timeout_ms: 1000 }));
            }
        }
        assert_eq!(harness.rows(Space::Claims), before, "{late}");
        assert!(harness.events("u").is_empty() && harness.rows(Space::Heads).is_empty(), "{late}");
        assert!(harness.endings().is_empty(), "{late}");
    }
}

/// The timeout is over, but the engine has not been woken for it yet.
#[test]
fn an_answer_in_the_moment_of_the_timeout_is_too_late() {
    let mut harness = Harness::with(vec![limited("m:h", "t", 1000)]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    harness.now = Now { mono: harness.now.mono + 1000, wall: harness.now.wall + 1000, ..harness.now };
    harness.finish("a", &run, Ok(vec![out("u", "1")]));
    assert!(harness.endings().is_empty() && harness.events("u").is_empty());
    assert_eq!(harness.claims()[0].attempts, 1);
    assert!(session(&harness).hanging.is_empty(), "it has returned");
}

#[test]
fn an_event_whose_handler_never_answers_ends_in_a_dead_letter_and_the_others_are_handled() {
    let config = WorkerConfig { event_max_attempts: 3, hanging_handlers_max: 2, ..config() };
    let mut harness = Harness::new();
    harness.join("a", config, vec![limited("m:hangs", "t", 1000), handler("m:well", "u")], Vec::new());
    harness.publish(out("t", "1"));
    let mut attempts = 0;
    for _ in 0..10 {
        while harness.waiting_runs("a") > 0 {
            // The runs of `m:hangs` are never finished.
            attempts += u32::from(harness.next_run("a").handler == 0);
        }
        harness.pass(2000);
    }
    assert_eq!((attempts, harness.endings()), (3, vec![Ending::DeadLettered]));
    let (_, letter) = harness.rows(Space::DeadLetters).remove(0);
    assert!(letter.contains("no answer within 1000 ms"), "{letter}");
    // Three runs hang and two of them were replaced: the only slot is taken now, and a note says so.
    assert!(harness.notes.iter().any(|note| matches!(note, Note::TimedOut { replaced: false, .. })));
    harness.publish(out("u", "1"));
    assert_eq!(harness.waiting_runs("a"), 0);
    assert_eq!(session(&harness).hanging.len(), 3);
    let hanging = session(&harness).hanging.remove(0);
    assert_eq!((hanging.handler.as_str(), hanging.cut_off), ("m:hangs", true));
}

#[test]
fn a_place_comes_back_when_a_hanging_function_returns() {
    let config = WorkerConfig { hanging_handlers_max: 0, ..config() };
    let mut harness = Harness::new();
    harness.join("a", config, vec![limited("m:hangs", "t", 1000), handler("m:well", "u")], Vec::new());
    harness.publish(out("t", "1"));
    let hangs = harness.next_run("a");
    harness.publish(out("u", "1"));
    harness.pass(5000);
    assert_eq!((harness.waiting_runs("a"), session(&harness).hanging.len()), (0, 1));
    harness.finish("a", &hangs, Ok(Vec::new()));
    assert_eq!(session(&harness).hanging.len(), 0);
    assert!(harness.notes.iter().any(|note| matches!(note, Note::Returned { after_ms: 5000, .. })));
    let both = [harness.ok("a").handler, harness.ok("a").handler];
    assert!(both.contains(&0) && both.contains(&1), "{both:?}");
}

#[test]
fn a_timeout_waits_for_the_commit_that_is_under_way() {
    let mut harness = Harness::with(vec![limited("m:h", "t", 1000)]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    harness.hold = true;
    harness.input("a", Input::Commit { run: run.run, commit: ensure("x", r#"{"a":1}"#) });
    harness.pass(1500);
    assert_eq!(harness.cuts, [run.run]);
    assert!(harness.answers.is_empty());
    harness.release_commits();
    assert!(matches!(harness.answers.pop(), Some(Ok(Some(_)))), "it was written, and says so");
    let row = harness.claims().remove(0);
    assert_eq!((row.state, row.attempts), (ClaimState::Waiting, 1));
    let again = harness.commit_run("a", &run, ensure("x", r#"{"a":2}"#));
    assert_eq!(again, Err(CommitError::TimedOut { timeout_ms: 1000 }));
}

/// A handler is never left waiting for an answer, not even if it commits while its lease is being renewed and then its
/// timeout ends.
#[test]
fn a_commit_after_the_cut_is_answered_while_the_row_is_still_being_changed() {
    let mut harness = Harness::new();
    let renewing = WorkerConfig { lease_renewal: true, event_claim_lease_ms: 1000, ..config() };
    harness.join("a", renewing, vec![limited("m:h", "t", 800)], Vec::new());
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    harness.hold = true;
    harness.pass(700);
    assert!(!harness.held.is_empty(), "the renewal is under way");
    harness.input("a", Input::Commit { run: run.run, commit: ensure("x", r#"{"a":1}"#) });
    assert!(harness.answers.is_empty());
    harness.pass(100);
    assert_eq!(harness.answers.pop(), Some(Err(CommitError::TimedOut { timeout_ms: 800 })));
    let again = harness.commit_run("a", &run, ensure("x", r#"{"a":1}"#));
    assert_eq!(again, Err(CommitError::TimedOut { timeout_ms: 800 }));
    harness.finish("a", &run, Ok(Vec::new()));
    harness.release_commits();
    harness.pass(0);
    let row = harness.claims().remove(0);
    assert_eq!((row.state, row.attempts), (ClaimState::Waiting, 1));
    assert!(session(&harness).hanging.is_empty(), "it has returned");
}

#[test]
fn a_stop_waits_for_its_grace_time_and_gives_back_what_still_runs_without_an_attempt() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    harness.input("a", Input::Stop);
    harness.pass(4999);
    assert!(harness.stopped.is_empty() && harness.cuts.is_empty());
    harness.pass(1);
    assert_eq!(
        (harness.stopped.as_slice(), harness.cuts.as_slice()),
        (["a"].as_slice(), [run.run].as_slice())
    );
    let row = harness.claims().remove(0);
    assert_eq!((row.state, row.attempts, row.session), (ClaimState::Waiting, 0, None));
    assert!(harness.notes.iter().any(|note| matches!(note, Note::CutByStop { .. })));
    let left = session(&harness);
    assert!(left.stopped.is_some() && left.hanging.len() == 1, "{left:?}");
    // Another session gets the event at once.
    harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    assert_eq!(harness.ok("b").attempt, 1);
}

#[test]
fn a_stop_is_over_as_soon_as_the_last_run_has_ended() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    harness.input("a", Input::Stop);
    harness.pass(2000);
    harness.ok("a");
    harness.pass(10);
    assert_eq!((harness.stopped.as_slice(), harness.endings()), (["a"].as_slice(), vec![Ending::Acked]));
}

#[test]
fn a_run_without_a_timeout_keeps_its_place_and_is_shown_when_its_lease_is_over() {
    let mut harness = Harness::with(vec![handler("m:h", "t"), handler("m:other", "u")]);
    harness.publish(out("t", "1"));
    let slow = harness.next_run("a");
    harness.pass(29_999);
    assert!(session(&harness).hanging.is_empty());
    harness.publish(out("u", "1"));
    harness.pass(1);
    assert_eq!((harness.waiting_runs("a"), harness.cuts.len()), (0, 0), "nobody is called beside it");
    let hanging = session(&harness).hanging;
    assert_eq!(
        (hanging.len(), hanging[0].cut_off, hanging[0].event.clone()),
        (1, false, slow.event.id.clone())
    );
    assert!(harness.notes.iter().any(|note| matches!(note, Note::Overdue { .. })));
    harness.finish("a", &slow, Ok(Vec::new()));
    harness.pass(6000);
    assert!(session(&harness).hanging.is_empty());
    assert_eq!(harness.waiting_runs("a"), 1);
}

#[test]
fn renewed_leases_end_with_the_timeout() {
    let mut harness = Harness::new();
    let renewing = WorkerConfig { lease_renewal: true, event_claim_lease_ms: 1000, ..config() };
    harness.join("a", renewing, vec![limited("m:h", "t", 5000)], Vec::new());
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    harness.pass(4900);
    assert!(harness.commit_run("a", &run, ensure("x", r#"{"a":1}"#)).is_ok(), "renewed until here");
    harness.pass(100);
    let row = harness.claims().remove(0);
    assert_eq!((row.state, row.attempts, harness.cuts.len()), (ClaimState::Waiting, 1, 1));
}

#[test]
fn a_run_that_goes_on_after_its_acknowledgement_keeps_nobody_awake() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    harness.input("a", Input::CommitAndAck { run: run.run, commit: ensure("e", "{}"), emitted: Vec::new() });
    assert_eq!(harness.endings(), [Ending::Acked]);
    for _ in 0..1000 {
        let next = harness.workers["a"].next_deadline().expect("a heartbeat");
        if next > Mono(60_000) {
            return harness.finish("a", &run, Ok(Vec::new()));
        }
        let mono = next.max(harness.now.mono);
        harness.now = Now { mono, wall: START + (mono.0 - 1), ..harness.now };
        harness.input("a", Input::Tick);
    }
    panic!("woken a thousand times within a minute");
}
