//! Commits of handlers: durable one by one, and a retry duplicates nothing.

mod harness;

use harness::*;
use millrace_claims::*;
use millrace_model::*;

fn with_event(changes: StateChanges, payload: &str) -> StateChanges {
    StateChanges { event: Some(out("u", payload)), ..changes }
}

#[test]
fn a_retry_after_commits_doubles_nothing() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    let one = harness.commit_run("a", &run, with_event(ensure("x", r#"{"a":1}"#), "first"));
    assert_eq!(one, Ok(Some(StateCommit(1))));
    harness.finish("a", &run, failed("after the first commit"));
    harness.pass(2000);
    let run = harness.next_run("a");
    let again = harness.commit_run("a", &run, with_event(ensure("x", r#"{"a":1}"#), "first"));
    assert_eq!(again, Ok(None), "nothing changed");
    let two = harness.commit_run("a", &run, with_event(ensure("y", r#"{"a":1}"#), "second"));
    assert_eq!(two, Ok(Some(StateCommit(2))));
    harness.crash("a");
    harness.pass(30_000);
    harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    let run = harness.next_run("b");
    for (entity, payload) in [("x", "first"), ("y", "second"), ("z", "third")] {
        harness.commit_run("b", &run, with_event(ensure(entity, r#"{"a":1}"#), payload)).unwrap();
    }
    harness.finish("b", &run, Ok(vec![out("u", "emitted")]));
    assert_eq!(harness.payloads("u"), ["first", "second", "third", "emitted"]);
    assert_eq!(harness.endings(), [Ending::Acked]);
}

#[test]
fn a_commit_without_event_appends_nothing() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    assert_eq!(harness.commit_run("a", &run, ensure("x", r#"{"a":1}"#)), Ok(Some(StateCommit(1))));
    assert_eq!(harness.commit_run("a", &run, StateChanges::default()), Ok(None));
    harness.finish("a", &run, Ok(Vec::new()));
    assert!(harness.events("u").is_empty());
}

#[test]
fn a_batch_that_is_too_big_is_refused_whole_and_the_handler_may_go_on() {
    let mut harness = Harness::new();
    let config = WorkerConfig { max_batch_size: 2, ..config() };
    harness.join("a", config, vec![handler("m:h", "t")], Vec::new());
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    let mut big = ensure("x", r#"{"a":1}"#);
    for key in ["y", "z"] {
        big.intents.extend(ensure(key, r#"{"a":1}"#).intents);
    }
    let refused = harness.commit_run("a", &run, big);
    assert_eq!(refused, Err(CommitError::BatchSizeExceeded { count: 3, limit: 2 }));
    assert!(harness.commit_run("a", &run, ensure("x", r#"{"a":1}"#)).is_ok());
    harness.finish("a", &run, Ok(Vec::new()));
    assert_eq!(harness.endings(), [Ending::Acked]);
}

#[test]
fn a_check_of_the_handler_is_named_by_its_place() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    let absent = Check::Absent { space: Space::Schemas, key: "k".into() };
    let present = Check::Present { space: Space::Schemas, key: "k".into() };
    let changes = StateChanges { checks: vec![absent, present], ..ensure("x", r#"{"a":1}"#) };
    assert_eq!(harness.commit_run("a", &run, changes), Err(CommitError::Refused { check: 1, found: None }));
    assert!(harness.rows(Space::Heads).is_empty());
}

#[test]
fn nothing_is_answered_before_it_is_durable() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    harness.hold = true;
    harness.input("a", Input::Commit { run: run.run, commit: ensure("x", r#"{"a":1}"#) });
    assert!(harness.answers.is_empty());
    harness.release_commits();
    assert_eq!(harness.answers, [Ok(Some(StateCommit(1)))]);
}

#[test]
fn a_store_that_fails_ends_the_worker_and_tells_everyone() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    harness.hold = true;
    harness.input("a", Input::Commit { run: run.run, commit: ensure("x", r#"{"a":1}"#) });
    harness.input("a", Input::Failed { reason: "disk full".into() });
    let failed = Err(CommitError::StorageFailed { reason: "disk full".into() });
    assert_eq!(
        (harness.answers.as_slice(), harness.stopped.as_slice()),
        ([failed.clone()].as_slice(), ["a"].as_slice())
    );
    assert_eq!(harness.commit_run("a", &run, ensure("x", r#"{"a":1}"#)), failed);
    harness.finish("a", &run, Ok(Vec::new()));
    harness.pass(100_000);
    assert_eq!(harness.held.len(), 1, "nothing more is asked of the store");
}

#[test]
fn events_outside_of_handlers_begin_their_own_chain() {
    let mut harness = Harness::new();
    harness.publish(out("t", "1"));
    let event = &harness.events("t")[0];
    assert_eq!(event.body.lineage, Lineage::default());
    let changes = StateChanges { event: Some(out("t", "2")), ..ensure("x", "{}") };
    let (namespace, topics) = (Namespace::default(), Topics::default());
    let batch =
        imperative(&config(), &namespace, &topics, changes, (harness.now, &mut Elapsed::default()), 9)
            .unwrap();
    let outcome = millrace_store::Store::commit(&harness.store, &[batch]).unwrap().remove(0);
    assert!(matches!(outcome, Outcome::Done(Done { state: Some(StateCommit(1)), .. })), "{outcome:?}");
}
