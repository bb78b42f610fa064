//! The last commit of a run (`commit_and_ack`) claims the next event: one commit for each event that is handled alone, and
//! what happens when that commit is refused, or its process dies.

mod harness;

use harness::*;
use millrace_claims::*;
use millrace_model::*;

fn commit_and_ack(
    harness: &mut Harness,
    who: &'static str,
    commit: StateChanges,
) -> Result<Option<StateCommit>, CommitError> {
    let run = harness.next_run(who);
    harness.input(who, Input::CommitAndAck { run: run.run, commit, emitted: Vec::new() });
    let answer = harness.answers.pop().expect("an answer");
    harness.finish(who, &run, Ok(Vec::new()));
    answer
}

fn with_events(config: WorkerConfig, handler: HandlerSpec, events: usize) -> Harness {
    let mut harness = Harness::new();
    for n in 0..events {
        harness.publish(OutEvent { key: Some("k".to_owned()), ..out("t", &n.to_string()) });
    }
    harness.join("a", config, vec![handler], Vec::new());
    harness
}

fn in_order() -> HandlerSpec {
    let settings = HandlerSettings { order: Some(HandlerOrder::Key), ..HandlerSettings::default() };
    HandlerSpec { settings, ..handler("m:h", "t") }
}

fn one_at_a_time() -> WorkerConfig {
    WorkerConfig { event_claim_limit: 1, ..config() }
}

#[test]
fn events_that_are_handled_alone_need_one_commit_each() {
    const EVENTS: usize = 20;
    for (config, handler) in [(config(), in_order()), (one_at_a_time(), handler("m:h", "t"))] {
        let mut harness = with_events(config, handler, EVENTS);
        let before = harness.commits;
        for n in 0..EVENTS {
            commit_and_ack(&mut harness, "a", ensure(&n.to_string(), "{}")).unwrap();
        }
        assert_eq!(harness.endings(), [Ending::Acked; EVENTS]);
        let commits = harness.commits - before;
        assert!(commits <= EVENTS + 2, "{commits} commits for {EVENTS} events");
    }
}

#[test]
fn a_process_that_dies_after_the_commit_loses_no_event_and_no_attempt() {
    let mut harness = with_events(one_at_a_time(), handler("m:h", "t"), 3);
    commit_and_ack(&mut harness, "a", ensure("1", "{}")).unwrap();
    assert_eq!(harness.claims().len(), 1, "the next event was claimed");
    harness.crash("a");
    harness.join("b", one_at_a_time(), vec![handler("m:h", "t")], Vec::new());
    for n in 0..2 {
        while harness.waiting_runs("b") == 0 {
            harness.pass(1000);
        }
        assert_eq!(harness.runs["b"][0].attempt, 1, "its run was not marked");
        commit_and_ack(&mut harness, "b", ensure(&n.to_string(), "{}")).unwrap();
    }
    assert_eq!(harness.endings(), [Ending::Acked; 3]);
}

#[test]
fn a_claim_in_a_refused_commit_is_made_by_the_next() {
    let mut harness = with_events(one_at_a_time(), handler("m:h", "t"), 2);
    let identity = Identity::Entity { type_name: "Thing".into(), key: "x".into() };
    let expected = Expected { identity, head: Some("something else".to_owned().into()) };
    let changes = StateChanges { expected: vec![expected], ..ensure("x", "{}") };
    assert!(matches!(commit_and_ack(&mut harness, "a", changes), Err(CommitError::Conflict { .. })));
    harness.pass(100);
    for n in 0..2 {
        commit_and_ack(&mut harness, "a", ensure(&n.to_string(), "{}")).unwrap();
        harness.pass(100);
    }
    assert_eq!(harness.endings(), [Ending::Acked; 2]);
}

#[test]
fn a_claim_in_a_commit_that_is_too_large_is_made_by_the_next() {
    let mut harness = with_events(one_at_a_time(), handler("m:h", "t"), 2);
    harness.narrow = |batch| batch.ops.iter().any(|op| matches!(op, Op::Reconcile(_)));
    let refused = commit_and_ack(&mut harness, "a", ensure("x", "{}"));
    assert!(matches!(refused, Err(CommitError::TooLarge { .. })), "{refused:?}");
    harness.narrow = |_| false;
    harness.pass(1000);
    commit_and_ack(&mut harness, "a", ensure("y", "{}")).unwrap();
    assert_eq!(
        harness.endings(),
        [Ending::Acked; 2],
        "the run that could not commit has ended well by itself"
    );
}

#[test]
fn a_session_that_stops_meanwhile_gives_the_claimed_event_back() {
    let mut harness = with_events(one_at_a_time(), handler("m:h", "t"), 2);
    let run = harness.next_run("a");
    harness.input("a", Input::CommitAndAck { run: run.run, commit: ensure("x", "{}"), emitted: Vec::new() });
    harness.input("a", Input::Stop);
    harness.finish("a", &run, Ok(Vec::new()));
    harness.pass(10);
    harness.join("b", one_at_a_time(), vec![handler("m:h", "t")], Vec::new());
    assert_eq!(harness.next_run("b").attempt, 1, "given back at once, and no attempt is counted");
}
