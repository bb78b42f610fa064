//! Conditional commits: state must be as it was read, a conflict is not a failure, and the last commit ends the event.

mod desk;

use desk::*;
use millrace_claims::*;
use millrace_model::*;

fn thing(key: &str) -> Identity {
    Identity::Entity { type_name: "Thing".into(), key: key.into() }
}

/// The identity in its present state, as a session would have read it.
fn read(desk: &Desk, key: &str) -> Expected {
    let row_key = keys::identity(&Namespace::default(), &thing(key));
    let head = desk.rows(Space::Heads).into_iter().find(|(key, _)| *key == row_key);
    Expected { identity: thing(key), head: head.map(|(_, row)| row.into()) }
}

/// Sets an entity that was read before.
fn replace(expected: Expected, entity: &str, fields: &str) -> StateChanges {
    StateChanges { expected: vec![expected], ..ensure(entity, fields) }
}

fn conflict(key: &str) -> Result<Option<StateCommit>, CommitError> {
    Err(CommitError::Conflict { identity: thing(key) })
}

fn commit_and_ack(
    desk: &mut Desk,
    run: &Run,
    commit: StateChanges,
    emitted: Vec<OutEvent>,
) -> Result<Option<StateCommit>, CommitError> {
    desk.input("a", Input::CommitAndAck { run: run.run, commit, emitted });
    desk.answers.pop().expect("an answer")
}

/// Two concurrent runs that have read the same state.
fn two_runs() -> (Desk, Run, Run) {
    two_runs_with(config())
}

fn two_runs_with(config: WorkerConfig) -> (Desk, Run, Run) {
    let mut desk = Desk::new();
    desk.join("a", WorkerConfig { handler_concurrency: 2, ..config }, vec![handler("m:h", "t")], Vec::new());
    desk.publish(out("t", "1"));
    desk.publish(out("t", "2"));
    let (one, two) = (desk.take("a"), desk.take("a"));
    (desk, one, two)
}

#[test]
fn the_second_of_two_that_read_the_same_is_run_again_and_no_attempt_is_counted() {
    let (mut desk, one, two) = two_runs();
    let absent = read(&desk, "x");
    assert_eq!(absent.head, None);
    assert!(desk.commit_run("a", &one, replace(absent.clone(), "x", r#"{"n":1}"#)).is_ok());
    assert_eq!(desk.commit_run("a", &two, replace(absent, "x", r#"{"n":1}"#)), conflict("x"));
    desk.finish("a", &one, Ok(Vec::new()));
    // The run is over, whatever the handler returns.
    desk.finish("a", &two, Ok(vec![out("u", "never")]));
    desk.pass(100);
    let again = desk.take("a");
    assert_eq!((&again.event.id, again.attempt), (&two.event.id, 1));
    assert_eq!((desk.claims()[0].attempts, desk.claims()[0].conflicts), (0, 1));
    let stands = read(&desk, "x");
    assert!(desk.commit_run("a", &again, replace(stands, "x", r#"{"n":2}"#)).is_ok());
    desk.finish("a", &again, Ok(Vec::new()));
    assert_eq!(desk.endings(), [Ending::Acked, Ending::Acked]);
    assert!(desk.rows(Space::Heads)[0].1.contains(r#"{\"n\":2}"#), "{:?}", desk.rows(Space::Heads));
    assert!(desk.events("u").is_empty());
    let conflicts = desk.notes.iter().filter(|note| matches!(note, Note::Conflict { conflicts: 1, .. }));
    assert_eq!(conflicts.count(), 1, "{:?}", desk.notes);
    assert!(!desk.notes.iter().any(|note| matches!(note, Note::Failed { .. })));
}

/// Both clocks are rounded down to milliseconds, at different moments: one may be a millisecond behind the other.
#[test]
fn a_worker_whose_event_waits_for_another_run_is_not_idle_by_either_clock() {
    // `alone`, so that no poll makes the worker busy; a long pause, so that it is above zero whatever is drawn.
    let alone = WorkerConfig { alone: true, conflict_backoff_ms: 100, ..config() };
    let (mut desk, one, two) = two_runs_with(alone);
    let absent = read(&desk, "x");
    desk.commit_run("a", &one, ensure("x", r#"{"n":1}"#)).unwrap();
    assert_eq!(desk.commit_run("a", &two, replace(absent, "x", "{}")), conflict("x"));
    desk.finish("a", &one, Ok(Vec::new()));
    desk.finish("a", &two, Ok(Vec::new()));
    let due = desk.claims()[0].due;
    assert!(desk.waiting("a") == 0 && due > desk.now.wall);
    desk.now.mono = desk.now.mono_at(due);
    desk.now.wall = Timestamp(due.0 - 1);
    desk.input("a", Input::Tick);
    assert!(!desk.workers["a"].is_idle());
    desk.now.wall = due;
    desk.input("a", Input::Tick);
    assert!(!desk.workers["a"].is_idle(), "the second run has begun");
    let again = desk.take("a");
    desk.finish("a", &again, Ok(Vec::new()));
    desk.pass(100);
    assert!(desk.workers["a"].is_idle());
}

#[test]
fn what_was_removed_or_changed_and_changed_back_is_a_conflict_too() {
    let (mut desk, one, two) = two_runs();
    desk.commit_run("a", &one, ensure("x", r#"{"n":1}"#)).unwrap();
    let before = read(&desk, "x");
    let mut gone = ensure("x", "{}");
    gone.intents[0].fields = None;
    desk.commit_run("a", &one, gone).unwrap();
    assert_eq!(desk.commit_run("a", &two, replace(before.clone(), "x", r#"{"n":2}"#)), conflict("x"));
    desk.commit_run("a", &one, ensure("x", r#"{"n":1}"#)).unwrap();
    assert_eq!(desk.commit_run("a", &two, replace(before, "x", r#"{"n":2}"#)), conflict("x"));
}

#[test]
fn a_panic_after_a_conflict_is_still_a_conflict() {
    let (mut desk, one, two) = two_runs();
    let absent = read(&desk, "x");
    desk.commit_run("a", &one, ensure("x", r#"{"n":1}"#)).unwrap();
    assert_eq!(desk.commit_run("a", &two, replace(absent, "x", "{}")), conflict("x"));
    desk.finish("a", &two, failed("panicked: called `Result::unwrap()` on an `Err` value"));
    assert!(desk.claims().iter().all(|claim| claim.attempts == 0), "{:?}", desk.claims());
}

#[test]
fn a_session_that_reads_again_inside_its_commit_goes_on() {
    let (mut desk, one, two) = two_runs();
    let absent = read(&desk, "x");
    desk.commit_run("a", &one, ensure("x", r#"{"n":1}"#)).unwrap();
    assert_eq!(desk.commit_run("a", &two, replace(absent, "x", "{}")), conflict("x"));
    let stands = read(&desk, "x");
    assert!(desk.commit_run("a", &two, replace(stands, "x", r#"{"n":2}"#)).is_ok());
    desk.finish("a", &two, Ok(vec![out("u", "1")]));
    desk.pass(100);
    assert_eq!((desk.endings(), desk.payloads("u")), (vec![Ending::Acked], vec!["1".to_owned()]));
}

#[test]
fn too_many_conflicts_count_as_a_failure_and_end_in_a_dead_letter() {
    let mut desk = Desk::new();
    let config = WorkerConfig { conflict_retries_max: 3, event_max_attempts: 2, ..config() };
    desk.join("a", config.clone(), vec![handler("m:h", "t")], Vec::new());
    desk.publish(out("t", "1"));
    let never = Expected { identity: thing("x"), head: Some("no such row".into()) };
    let (mut attempts, mut crashed) = (Vec::new(), false);
    while desk.endings().is_empty() {
        let run = desk.take("a");
        attempts.push(run.attempt);
        assert_eq!(desk.commit_run("a", &run, replace(never.clone(), "x", "{}")), conflict("x"));
        desk.finish("a", &run, failed("conflict"));
        let waits = desk.claims().iter().any(|claim| claim.state == ClaimState::Waiting);
        if waits && !std::mem::replace(&mut crashed, true) {
            // The row holds the count: another process continues it.
            desk.crash("a");
            desk.join("a", config.clone(), vec![handler("m:h", "t")], Vec::new());
        }
        desk.pass(2000);
    }
    assert!(crashed, "no pause was longer than nothing");
    assert_eq!(attempts, [1, 1, 1, 1, 2, 2, 2, 2]);
    assert_eq!(desk.endings(), [Ending::DeadLettered]);
    let letter = &desk.rows(Space::DeadLetters)[0].1;
    assert!(letter.contains("4 conflicts in a row") && letter.contains("Thing"), "{letter}");
}

#[test]
fn conflicts_keep_what_was_committed_before_and_do_not_store_its_event_again() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    let never = Expected { identity: thing("x"), head: Some("no such row".into()) };
    let with_event = |payload: &str| StateChanges { event: Some(out("u", payload)), ..ensure("y", "{}") };
    let run = desk.take("a");
    desk.commit_run("a", &run, with_event("first")).unwrap();
    // A commit that ended in a conflict does not count: the same commit again stores the same event.
    let mut second = with_event("second");
    second.expected.push(never.clone());
    assert_eq!(desk.commit_run("a", &run, second), conflict("x"));
    desk.finish("a", &run, failed("conflict"));
    desk.pass(100);
    let run = desk.take("a");
    desk.commit_run("a", &run, with_event("first")).unwrap();
    desk.commit_run("a", &run, with_event("second")).unwrap();
    desk.finish("a", &run, Ok(vec![out("u", "third")]));
    assert_eq!(desk.payloads("u"), ["first", "second", "third"]);
}

#[test]
fn a_lost_lease_is_not_taken_for_a_conflict() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    desk.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    desk.pass(30_000);
    let stands = read(&desk, "x");
    assert_eq!(
        desk.commit_run("a", &run, replace(stands, "x", "{}")),
        Err(CommitError::LeaseExpired),
        "although nothing else is wrong with it"
    );
}

#[test]
fn the_last_commit_carries_the_acknowledgement_and_what_was_emitted() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    let commits = desk.commits;
    let absent = read(&desk, "x");
    let done = commit_and_ack(&mut desk, &run, replace(absent, "x", r#"{"n":1}"#), vec![out("u", "1")]);
    assert_eq!(done, Ok(Some(StateCommit(1))));
    assert_eq!((desk.commits - commits, desk.endings(), desk.claims().len()), (1, vec![Ending::Acked], 0));
    assert_eq!(desk.payloads("u"), ["1"]);
    let number = keys::commit_of_event(&Namespace::default(), &desk.events("u")[0].id);
    assert!(desk.rows(Space::Kv).contains(&(number, "1".to_owned())));
    // Later commits are refused, and the result of the run changes nothing.
    assert_eq!(desk.commit_run("a", &run, ensure("x", "{}")), Err(CommitError::Acknowledged));
    let again = commit_and_ack(&mut desk, &run, StateChanges::default(), Vec::new());
    assert_eq!(again, Err(CommitError::Acknowledged));
    desk.finish("a", &run, failed("too late"));
    desk.pass(120_000);
    assert_eq!((desk.waiting("a"), desk.endings()), (0, vec![Ending::Acked]));
    assert_eq!(desk.payloads("u"), ["1"]);
    let told = desk
        .notes
        .iter()
        .any(|note| matches!(note, Note::FailedAfterAck { error, .. } if error == "too late"));
    assert!(told, "{:?}", desk.notes);
}

#[test]
fn a_crash_right_after_the_last_commit_repeats_nothing() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    commit_and_ack(&mut desk, &run, ensure("x", r#"{"n":1}"#), vec![out("u", "1")]).unwrap();
    desk.crash("a");
    desk.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    desk.pass(120_000);
    assert_eq!((desk.waiting("b"), desk.payloads("u").len()), (0, 1));
}

#[test]
fn a_last_commit_that_conflicts_acknowledges_nothing() {
    let (mut desk, one, two) = two_runs();
    let absent = read(&desk, "x");
    commit_and_ack(&mut desk, &one, replace(absent.clone(), "x", "{}"), vec![out("u", "1")]).unwrap();
    let refused = commit_and_ack(&mut desk, &two, replace(absent, "x", "{}"), vec![out("u", "2")]);
    assert_eq!(refused, conflict("x"));
    desk.finish("a", &one, Ok(Vec::new()));
    desk.finish("a", &two, Ok(Vec::new()));
    assert_eq!((desk.endings().len(), desk.payloads("u")), (1, vec!["1".to_owned()]));
    desk.pass(100);
    let again = desk.take("a");
    let stands = read(&desk, "x");
    commit_and_ack(&mut desk, &again, replace(stands, "x", r#"{"n":2}"#), vec![out("u", "2")]).unwrap();
    desk.finish("a", &again, Ok(Vec::new()));
    assert_eq!((desk.endings().len(), desk.payloads("u").len()), (2, 2));
}

#[test]
fn a_last_commit_that_is_too_large_leaves_the_run_as_it_was() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    desk.narrow = |batch| batch.ops.iter().any(|op| matches!(op, Op::Append(_)));
    let refused = commit_and_ack(&mut desk, &run, ensure("x", "{}"), vec![out("u", "1")]);
    assert!(matches!(refused, Err(CommitError::TooLarge { .. })), "{refused:?}");
    assert!(commit_and_ack(&mut desk, &run, ensure("x", "{}"), Vec::new()).is_ok());
    assert_eq!(desk.endings(), [Ending::Acked]);
}

#[test]
fn the_lease_of_a_run_that_is_acknowledged_is_not_renewed() {
    let mut desk = Desk::new();
    let renewing = WorkerConfig { lease_renewal: true, ..config() };
    desk.join("a", renewing, vec![handler("m:h", "t")], Vec::new());
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    commit_and_ack(&mut desk, &run, ensure("x", "{}"), Vec::new()).unwrap();
    desk.pass(100_000);
    assert!(desk.claims().is_empty());
    desk.finish("a", &run, Ok(Vec::new()));
    desk.input("a", Input::Stop);
    assert_eq!(desk.stopped, ["a"]);
}

/// The second event starts from the queue: when it commits, its row does not yet say that it has started.
#[test]
fn a_last_commit_ends_a_claim_whose_start_was_not_written_yet() {
    let mut desk = Desk::new();
    desk.join("a", config(), vec![handler("m:h", "t")], Vec::new());
    desk.publish(out("t", "1"));
    desk.publish(out("t", "2"));
    desk.ok("a");
    let run = desk.take("a");
    commit_and_ack(&mut desk, &run, ensure("x", "{}"), Vec::new()).unwrap();
    desk.finish("a", &run, Ok(Vec::new()));
    desk.pass(100);
    assert_eq!(desk.endings(), [Ending::Acked, Ending::Acked]);
    assert_eq!(desk.claims(), []);
}
