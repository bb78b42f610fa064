//! Runs that do not end: cut off in time, fenced from then on, their places replaced up to a limit; a stop does not
//! wait for them for ever.

mod desk;

use desk::*;
use millrace_claims::*;
use millrace_model::*;

fn limited(id: &str, topic: &str, timeout_ms: u64) -> HandlerSpec {
    let settings = HandlerSettings { timeout_ms: Some(timeout_ms), ..HandlerSettings::default() };
    HandlerSpec { settings, ..handler(id, topic) }
}

fn session(desk: &Desk) -> SessionRow {
    let (key, value) = desk.rows(Space::Sessions).remove(0);
    SessionRow::decode(&key, value.as_bytes()).expect("a row of a session")
}

#[test]
fn a_run_that_does_not_answer_has_failed_and_is_tried_again_without_it() {
    let mut desk = Desk::with(vec![limited("m:h", "t", 1000)]);
    desk.publish(out("t", "1"));
    let first = desk.take("a");
    assert_eq!(first.timeout_ms, Some(1000));
    desk.pass(999);
    assert!(desk.cuts.is_empty() && desk.notes.is_empty());
    desk.pass(1);
    assert_eq!(desk.cuts, [first.run]);
    let row = desk.claims().remove(0);
    assert_eq!(
        (row.state, row.attempts, row.error.as_deref()),
        (ClaimState::Waiting, 1, Some("no answer within 1000 ms"))
    );
    assert!(
        desk.notes.iter().any(|note| matches!(note, Note::TimedOut { timeout_ms: 1000, replaced: true, .. }))
    );
    // The retry gets the only place of the session: the place has been replaced.
    desk.pass(1000);
    assert_eq!(desk.ok("a").attempt, 2);
    assert_eq!(desk.endings(), [Ending::Acked]);
}

#[test]
fn what_a_run_says_after_its_timeout_changes_nothing() {
    for late in ["succeeds", "fails", "commits"] {
        let mut desk = Desk::with(vec![limited("m:h", "t", 1000)]);
        desk.publish(out("t", "1"));
        let first = desk.take("a");
        desk.pass(1000);
        let before = desk.rows(Space::Claims);
        match late {
            "succeeds" => desk.finish("a", &first, Ok(vec![out("u", "lost")])),
            "fails" => desk.finish("a", &first, failed("too late to fail")),
            _ => {
                let refused = desk.commit_run("a", &first, ensure("x", r#"{"a":1}"#));
                assert_eq!(refused, Err(CommitError::TimedOut { timeout_ms: 1000 }));
            }
        }
        assert_eq!(desk.rows(Space::Claims), before, "{late}");
        assert!(desk.events("u").is_empty() && desk.rows(Space::Heads).is_empty(), "{late}");
        assert!(desk.endings().is_empty(), "{late}");
    }
}

/// The timeout is over, but the engine has not been woken for it yet.
#[test]
fn an_answer_in_the_moment_of_the_timeout_is_too_late() {
    let mut desk = Desk::with(vec![limited("m:h", "t", 1000)]);
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    desk.now = Now { mono: desk.now.mono + 1000, wall: desk.now.wall + 1000, ..desk.now };
    desk.finish("a", &run, Ok(vec![out("u", "1")]));
    assert!(desk.endings().is_empty() && desk.events("u").is_empty());
    assert_eq!(desk.claims()[0].attempts, 1);
    assert!(session(&desk).hanging.is_empty(), "it has returned");
}

#[test]
fn an_event_whose_handler_never_answers_ends_in_a_dead_letter_and_the_others_are_handled() {
    let config = WorkerConfig { event_max_attempts: 3, hanging_handlers_max: 2, ..config() };
    let mut desk = Desk::new();
    desk.join("a", config, vec![limited("m:hangs", "t", 1000), handler("m:well", "u")], Vec::new());
    desk.publish(out("t", "1"));
    let mut tries = 0;
    for _ in 0..10 {
        while desk.waiting("a") > 0 {
            // The runs of `m:hangs` are never finished.
            tries += u32::from(desk.take("a").handler == 0);
        }
        desk.pass(2000);
    }
    assert_eq!((tries, desk.endings()), (3, vec![Ending::DeadLettered]));
    let (_, letter) = desk.rows(Space::DeadLetters).remove(0);
    assert!(letter.contains("no answer within 1000 ms"), "{letter}");
    // Three runs hang and two of them were replaced: the only place is taken now, and a note says so.
    assert!(desk.notes.iter().any(|note| matches!(note, Note::TimedOut { replaced: false, .. })));
    desk.publish(out("u", "1"));
    assert_eq!(desk.waiting("a"), 0);
    assert_eq!(session(&desk).hanging.len(), 3);
    let hanging = session(&desk).hanging.remove(0);
    assert_eq!((hanging.handler.as_str(), hanging.cut_off), ("m:hangs", true));
}

#[test]
fn a_place_comes_back_when_a_hanging_function_returns() {
    let config = WorkerConfig { hanging_handlers_max: 0, ..config() };
    let mut desk = Desk::new();
    desk.join("a", config, vec![limited("m:hangs", "t", 1000), handler("m:well", "u")], Vec::new());
    desk.publish(out("t", "1"));
    let hangs = desk.take("a");
    desk.publish(out("u", "1"));
    desk.pass(5000);
    assert_eq!((desk.waiting("a"), session(&desk).hanging.len()), (0, 1));
    desk.finish("a", &hangs, Ok(Vec::new()));
    assert_eq!(session(&desk).hanging.len(), 0);
    assert!(desk.notes.iter().any(|note| matches!(note, Note::Returned { after_ms: 5000, .. })));
    let both = [desk.ok("a").handler, desk.ok("a").handler];
    assert!(both.contains(&0) && both.contains(&1), "{both:?}");
}

#[test]
fn a_timeout_waits_for_the_commit_that_is_under_way() {
    let mut desk = Desk::with(vec![limited("m:h", "t", 1000)]);
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    desk.hold = true;
    desk.input("a", Input::Commit { run: run.run, commit: ensure("x", r#"{"a":1}"#) });
    desk.pass(1500);
    assert_eq!(desk.cuts, [run.run]);
    assert!(desk.answers.is_empty());
    desk.let_go();
    assert!(matches!(desk.answers.pop(), Some(Ok(Some(_)))), "it was written, and says so");
    let row = desk.claims().remove(0);
    assert_eq!((row.state, row.attempts), (ClaimState::Waiting, 1));
    let again = desk.commit_run("a", &run, ensure("x", r#"{"a":2}"#));
    assert_eq!(again, Err(CommitError::TimedOut { timeout_ms: 1000 }));
}

/// A handler is never left waiting for an answer, not even if it commits while its lease is being renewed and then its
/// timeout ends.
#[test]
fn a_commit_after_the_cut_is_answered_while_the_row_is_still_being_changed() {
    let mut desk = Desk::new();
    let renewing = WorkerConfig { lease_renewal: true, event_claim_lease_ms: 1000, ..config() };
    desk.join("a", renewing, vec![limited("m:h", "t", 800)], Vec::new());
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    desk.hold = true;
    desk.pass(700);
    assert!(!desk.held.is_empty(), "the renewal is under way");
    desk.input("a", Input::Commit { run: run.run, commit: ensure("x", r#"{"a":1}"#) });
    assert!(desk.answers.is_empty());
    desk.pass(100);
    assert_eq!(desk.answers.pop(), Some(Err(CommitError::TimedOut { timeout_ms: 800 })));
    let again = desk.commit_run("a", &run, ensure("x", r#"{"a":1}"#));
    assert_eq!(again, Err(CommitError::TimedOut { timeout_ms: 800 }));
    desk.finish("a", &run, Ok(Vec::new()));
    desk.let_go();
    desk.pass(0);
    let row = desk.claims().remove(0);
    assert_eq!((row.state, row.attempts), (ClaimState::Waiting, 1));
    assert!(session(&desk).hanging.is_empty(), "it has returned");
}

#[test]
fn a_stop_waits_for_its_grace_time_and_gives_back_what_still_runs_without_an_attempt() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    desk.input("a", Input::Stop);
    desk.pass(4999);
    assert!(desk.stopped.is_empty() && desk.cuts.is_empty());
    desk.pass(1);
    assert_eq!((desk.stopped.as_slice(), desk.cuts.as_slice()), (["a"].as_slice(), [run.run].as_slice()));
    let row = desk.claims().remove(0);
    assert_eq!((row.state, row.attempts, row.session), (ClaimState::Waiting, 0, None));
    assert!(desk.notes.iter().any(|note| matches!(note, Note::CutByStop { .. })));
    let left = session(&desk);
    assert!(left.stopped.is_some() && left.hanging.len() == 1, "{left:?}");
    // Another session gets the event at once.
    desk.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    assert_eq!(desk.ok("b").attempt, 1);
}

#[test]
fn a_stop_is_over_as_soon_as_the_last_run_has_ended() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    desk.input("a", Input::Stop);
    desk.pass(2000);
    desk.ok("a");
    desk.pass(10);
    assert_eq!((desk.stopped.as_slice(), desk.endings()), (["a"].as_slice(), vec![Ending::Acked]));
}

#[test]
fn a_run_without_a_timeout_keeps_its_place_and_is_shown_when_its_lease_is_over() {
    let mut desk = Desk::with(vec![handler("m:h", "t"), handler("m:other", "u")]);
    desk.publish(out("t", "1"));
    let slow = desk.take("a");
    desk.pass(29_999);
    assert!(session(&desk).hanging.is_empty());
    desk.publish(out("u", "1"));
    desk.pass(1);
    assert_eq!((desk.waiting("a"), desk.cuts.len()), (0, 0), "nobody is called beside it");
    let hanging = session(&desk).hanging;
    assert_eq!(
        (hanging.len(), hanging[0].cut_off, hanging[0].event.clone()),
        (1, false, slow.event.id.clone())
    );
    assert!(desk.notes.iter().any(|note| matches!(note, Note::Overdue { .. })));
    desk.finish("a", &slow, Ok(Vec::new()));
    desk.pass(6000);
    assert!(session(&desk).hanging.is_empty());
    assert_eq!(desk.waiting("a"), 1);
}

#[test]
fn renewed_leases_end_with_the_timeout() {
    let mut desk = Desk::new();
    let renewing = WorkerConfig { lease_renewal: true, event_claim_lease_ms: 1000, ..config() };
    desk.join("a", renewing, vec![limited("m:h", "t", 5000)], Vec::new());
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    desk.pass(4900);
    assert!(desk.commit_run("a", &run, ensure("x", r#"{"a":1}"#)).is_ok(), "renewed until here");
    desk.pass(100);
    let row = desk.claims().remove(0);
    assert_eq!((row.state, row.attempts, desk.cuts.len()), (ClaimState::Waiting, 1, 1));
}

#[test]
fn a_run_that_goes_on_after_its_acknowledgement_keeps_nobody_awake() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    desk.input("a", Input::CommitAndAck { run: run.run, commit: ensure("e", "{}"), emitted: Vec::new() });
    assert_eq!(desk.endings(), [Ending::Acked]);
    for _ in 0..1000 {
        let next = desk.workers["a"].next_deadline().expect("a heartbeat");
        if next > Mono(60_000) {
            return desk.finish("a", &run, Ok(Vec::new()));
        }
        let mono = next.max(desk.now.mono);
        desk.now = Now { mono, wall: START + (mono.0 - 1), ..desk.now };
        desk.input("a", Input::Tick);
    }
    panic!("woken a thousand times within a minute");
}
