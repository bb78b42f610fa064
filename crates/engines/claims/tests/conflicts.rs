//! Conditional commits: state must be as it was read, a conflict is not a failure, and the last commit ends the event.

mod harness;

use harness::*;
use millrace_claims::*;
use millrace_model::*;

fn thing(key: &str) -> Identity {
    Identity::Entity { type_name: "Thing".into(), key: key.into() }
}

/// The identity in its present state, as a session would have read it.
fn read(harness: &Harness, key: &str) -> Expected {
    let row_key = keys::identity(&Namespace::default(), &thing(key));
    let head = harness.rows(Space::Heads).into_iter().find(|(key, _)| *key == row_key);
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
    harness: &mut Harness,
    run: &HandlerRun,
    commit: StateChanges,
    emitted: Vec<OutEvent>,
) -> Result<Option<StateCommit>, CommitError> {
    harness.input("a", Input::CommitAndAck { run: run.run, commit, emitted });
    harness.answers.pop().expect("an answer")
}

/// Two concurrent runs that have read the same state.
fn two_runs() -> (Harness, HandlerRun, HandlerRun) {
    two_runs_with(config())
}

fn two_runs_with(config: WorkerConfig) -> (Harness, HandlerRun, HandlerRun) {
    let mut harness = Harness::new();
    harness.join(
        "a",
        WorkerConfig { handler_concurrency: 2, ..config },
        vec![handler("m:h", "t")],
        Vec::new(),
    );
    harness.publish(out("t", "1"));
    harness.publish(out("t", "2"));
    let (one, two) = (harness.next_run("a"), harness.next_run("a"));
    (harness, one, two)
}

#[test]
fn the_second_of_two_that_read_the_same_is_run_again_and_no_attempt_is_counted() {
    let (mut harness, one, two) = two_runs();
    let absent = read(&harness, "x");
    assert_eq!(absent.head, None);
    assert!(harness.commit_run("a", &one, replace(absent.clone(), "x", r#"{"n":1}"#)).is_ok());
    assert_eq!(harness.commit_run("a", &two, replace(absent, "x", r#"{"n":1}"#)), conflict("x"));
    harness.finish("a", &one, Ok(Vec::new()));
    // The run is over, whatever the handler returns.
    harness.finish("a", &two, Ok(vec![out("u", "never")]));
    harness.pass(100);
    let again = harness.next_run("a");
    assert_eq!((&again.event.id, again.attempt), (&two.event.id, 1));
    assert_eq!((harness.claims()[0].attempts, harness.claims()[0].conflicts), (0, 1));
    let stands = read(&harness, "x");
    assert!(harness.commit_run("a", &again, replace(stands, "x", r#"{"n":2}"#)).is_ok());
    harness.finish("a", &again, Ok(Vec::new()));
    assert_eq!(harness.endings(), [Ending::Acked, Ending::Acked]);
    assert!(harness.rows(Space::Heads)[0].1.contains(r#"{\"n\":2}"#), "{:?}", harness.rows(Space::Heads));
    assert!(harness.events("u").is_empty());
    let conflicts = harness.notes.iter().filter(|note| matches!(note, Note::Conflict { conflicts: 1, .. }));
    assert_eq!(conflicts.count(), 1, "{:?}", harness.notes);
    assert!(!harness.notes.iter().any(|note| matches!(note, Note::Failed { .. })));
}

/// Both clocks are rounded down to milliseconds, at different moments: one may be a millisecond behind the other.
#[test]
fn a_worker_whose_event_waits_for_another_run_is_not_idle_by_either_clock() {
    // `alone`, so that no poll makes the worker busy; a long pause, so that it is above zero whatever is drawn.
    let alone = WorkerConfig { alone: true, conflict_backoff_ms: 100, ..config() };
    let (mut harness, one, two) = two_runs_with(alone);
    let absent = read(&harness, "x");
    harness.commit_run("a", &one, ensure("x", r#"{"n":1}"#)).unwrap();
    assert_eq!(harness.commit_run("a", &two, replace(absent, "x", "{}")), conflict("x"));
    harness.finish("a", &one, Ok(Vec::new()));
    harness.finish("a", &two, Ok(Vec::new()));
    let due = harness.claims()[0].due;
    assert!(harness.waiting_runs("a") == 0 && due > harness.now.wall);
    harness.now.mono = harness.now.mono_at(due);
    harness.now.wall = Timestamp(due.0 - 1);
    harness.input("a", Input::Tick);
    assert!(!harness.workers["a"].is_idle());
    harness.now.wall = due;
    harness.input("a", Input::Tick);
    assert!(!harness.workers["a"].is_idle(), "the second run has begun");
    let again = harness.next_run("a");
    harness.finish("a", &again, Ok(Vec::new()));
    harness.pass(100);
    assert!(harness.workers["a"].is_idle());
}

#[test]
fn what_was_removed_or_changed_and_changed_back_is_a_conflict_too() {
    let (mut harness, one, two) = two_runs();
    harness.commit_run("a", &one, ensure("x", r#"{"n":1}"#)).unwrap();
    let before = read(&harness, "x");
    let mut gone = ensure("x", "{}");
    gone.intents[0].fields = None;
    harness.commit_run("a", &one, gone).unwrap();
    assert_eq!(harness.commit_run("a", &two, replace(before.clone(), "x", r#"{"n":2}"#)), conflict("x"));
    harness.commit_run("a", &one, ensure("x", r#"{"n":1}"#)).unwrap();
    assert_eq!(harness.commit_run("a", &two, replace(before, "x", r#"{"n":2}"#)), conflict("x"));
}

#[test]
fn a_panic_after_a_conflict_is_still_a_conflict() {
    let (mut harness, one, two) = two_runs();
    let absent = read(&harness, "x");
    harness.commit_run("a", &one, ensure("x", r#"{"n":1}"#)).unwrap();
    assert_eq!(harness.commit_run("a", &two, replace(absent, "x", "{}")), conflict("x"));
    harness.finish("a", &two, failed("panicked: called `Result::unwrap()` on an `Err` value"));
    assert!(harness.claims().iter().all(|claim| claim.attempts == 0), "{:?}", harness.claims());
}

#[test]
fn a_session_that_reads_again_inside_its_commit_goes_on() {
    let (mut harness, one, two) = two_runs();
    let absent = read(&harness, "x");
    harness.commit_run("a", &one, ensure("x", r#"{"n":1}"#)).unwrap();
    assert_eq!(harness.commit_run("a", &two, replace(absent, "x", "{}")), conflict("x"));
    let stands = read(&harness, "x");
    assert!(harness.commit_run("a", &two, replace(stands, "x", r#"{"n":2}"#)).is_ok());
    harness.finish("a", &two, Ok(vec![out("u", "1")]));
    harness.pass(100);
    assert_eq!((harness.endings(), harness.payloads("u")), (vec![Ending::Acked], vec!["1".to_owned()]));
}

#[test]
fn too_many_conflicts_count_as_a_failure_and_end_in_a_dead_letter() {
    let mut harness = Harness::new();
    let config = WorkerConfig { conflict_retries_max: 3, event_max_attempts: 2, ..config() };
    harness.join("a", config.clone(), vec![handler("m:h", "t")], Vec::new());
    harness.publish(out("t", "1"));
    let never = Expected { identity: thing("x"), head: Some("no such row".into()) };
    let (mut attempts, mut crashed) = (Vec::new(), false);
    while harness.endings().is_empty() {
        let run = harness.next_run("a");
        attempts.push(run.attempt);
        assert_eq!(harness.commit_run("a", &run, replace(never.clone(), "x", "{}")), conflict("x"));
        harness.finish("a", &run, failed("conflict"));
        let waits = harness.claims().iter().any(|claim| claim.state == ClaimState::Waiting);
        if waits && !std::mem::replace(&mut crashed, true) {
            // The row holds the count: another process continues it.
            harness.crash("a");
            harness.join("a", config.clone(), vec![handler("m:h", "t")], Vec::new());
        }
        harness.pass(2000);
    }
    assert!(crashed, "no pause was longer than nothing");
    assert_eq!(attempts, [1, 1, 1, 1, 2, 2, 2, 2]);
    assert_eq!(harness.endings(), [Ending::DeadLettered]);
    let letter = &harness.rows(Space::DeadLetters)[0].1;
    assert!(letter.contains("4 conflicts in a row") && letter.contains("Thing"), "{letter}");
}

#[test]
fn conflicts_keep_what_was_committed_before_and_do_not_store_its_event_again() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let never = Expected { identity: thing("x"), head: Some("no such row".into()) };
    let with_event = |payload: &str| StateChanges { event: Some(out("u", payload)), ..ensure("y", "{}") };
    let run = harness.next_run("a");
    harness.commit_run("a", &run, with_event("first")).unwrap();
    // A commit that ended in a conflict does not count: the same commit again stores the same event.
    let mut second = with_event("second");
    second.expected.push(never.clone());
    assert_eq!(harness.commit_run("a", &run, second), conflict("x"));
    harness.finish("a", &run, failed("conflict"));
    harness.pass(100);
    let run = harness.next_run("a");
    harness.commit_run("a", &run, with_event("first")).unwrap();
    harness.commit_run("a", &run, with_event("second")).unwrap();
    harness.finish("a", &run, Ok(vec![out("u", "third")]));
    assert_eq!(harness.payloads("u"), ["first", "second", "third"]);
}

#[test]
fn a_lost_lease_is_not_taken_for_a_conflict() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    harness.pass(30_000);
    let stands = read(&harness, "x");
    assert_eq!(
        harness.commit_run("a", &run, replace(stands, "x", "{}")),
        Err(CommitError::LeaseExpired),
        "although nothing else is wrong with it"
    );
}

#[test]
fn the_last_commit_carries_the_acknowledgement_and_what_was_emitted() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    let commits = harness.commits;
    let absent = read(&harness, "x");
    let done = commit_and_ack(&mut harness, &run, replace(absent, "x", r#"{"n":1}"#), vec![out("u", "1")]);
    assert_eq!(done, Ok(Some(StateCommit(1))));
    assert_eq!(
        (harness.commits - commits, harness.endings(), harness.claims().len()),
        (1, vec![Ending::Acked], 0)
    );
    assert_eq!(harness.payloads("u"), ["1"]);
    let number = keys::commit_of_event(&Namespace::default(), &harness.events("u")[0].id);
    assert!(harness.rows(Space::Kv).contains(&(number, "1".to_owned())));
    // Later commits are refused, and the result of the run changes nothing.
    assert_eq!(harness.commit_run("a", &run, ensure("x", "{}")), Err(CommitError::Acknowledged));
    let again = commit_and_ack(&mut harness, &run, StateChanges::default(), Vec::new());
    assert_eq!(again, Err(CommitError::Acknowledged));
    harness.finish("a", &run, failed("too late"));
    harness.pass(120_000);
    assert_eq!((harness.waiting_runs("a"), harness.endings()), (0, vec![Ending::Acked]));
    assert_eq!(harness.payloads("u"), ["1"]);
    let told = harness
        .notes
        .iter()
        .any(|note| matches!(note, Note::FailedAfterAck { error, .. } if error == "too late"));
    assert!(told, "{:?}", harness.notes);
}

#[test]
fn a_crash_right_after_the_last_commit_repeats_nothing() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    commit_and_ack(&mut harness, &run, ensure("x", r#"{"n":1}"#), vec![out("u", "1")]).unwrap();
    harness.crash("a");
    harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    harness.pass(120_000);
    assert_eq!((harness.waiting_runs("b"), harness.payloads("u").len()), (0, 1));
}

#[test]
fn a_last_commit_that_conflicts_acknowledges_nothing() {
    let (mut harness, one, two) = two_runs();
    let absent = read(&harness, "x");
    commit_and_ack(&mut harness, &one, replace(absent.clone(), "x", "{}"), vec![out("u", "1")]).unwrap();
    let refused = commit_and_ack(&mut harness, &two, replace(absent, "x", "{}"), vec![out("u", "2")]);
    assert_eq!(refused, conflict("x"));
    harness.finish("a", &one, Ok(Vec::new()));
    harness.finish("a", &two, Ok(Vec::new()));
    assert_eq!((harness.endings().len(), harness.payloads("u")), (1, vec!["1".to_owned()]));
    harness.pass(100);
    let again = harness.next_run("a");
    let stands = read(&harness, "x");
    commit_and_ack(&mut harness, &again, replace(stands, "x", r#"{"n":2}"#), vec![out("u", "2")]).unwrap();
    harness.finish("a", &again, Ok(Vec::new()));
    assert_eq!((harness.endings().len(), harness.payloads("u").len()), (2, 2));
}

#[test]
fn a_last_commit_that_is_too_large_leaves_the_run_as_it_was() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    harness.narrow = |batch| batch.ops.iter().any(|op| matches!(op, Op::Append(_)));
    let refused = commit_and_ack(&mut harness, &run, ensure("x", "{}"), vec![out("u", "1")]);
    assert!(matches!(refused, Err(CommitError::TooLarge { .. })), "{refused:?}");
    assert!(commit_and_ack(&mut harness, &run, ensure("x", "{}"), Vec::new()).is_ok());
    assert_eq!(harness.endings(), [Ending::Acked]);
}

#[test]
fn the_lease_of_a_run_that_is_acknowledged_is_not_renewed() {
    let mut harness = Harness::new();
    let renewing = WorkerConfig { lease_renewal: true, ..config() };
    harness.join("a", renewing, vec![handler("m:h", "t")], Vec::new());
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    commit_and_ack(&mut harness, &run, ensure("x", "{}"), Vec::new()).unwrap();
    harness.pass(100_000);
    assert!(harness.claims().is_empty());
    harness.finish("a", &run, Ok(Vec::new()));
    harness.input("a", Input::Stop);
    assert_eq!(harness.stopped, ["a"]);
}

/// The second event starts from the queue: when it commits, its row does not yet say that it has started.
#[test]
fn a_last_commit_ends_a_claim_whose_start_was_not_written_yet() {
    let mut harness = Harness::new();
    harness.join("a", config(), vec![handler("m:h", "t")], Vec::new());
    harness.publish(out("t", "1"));
    harness.publish(out("t", "2"));
    harness.ok("a");
    let run = harness.next_run("a");
    commit_and_ack(&mut harness, &run, ensure("x", "{}"), Vec::new()).unwrap();
    harness.finish("a", &run, Ok(Vec::new()));
    harness.pass(100);
    assert_eq!(harness.endings(), [Ending::Acked, Ending::Acked]);
    assert_eq!(harness.claims(), []);
}
