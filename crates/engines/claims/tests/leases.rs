//! Leases: which session holds an event, until when, and that a session which lost it can write nothing.

mod harness;

use harness::*;
use millrace_claims::*;
use millrace_model::*;

fn two() -> Harness {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    harness
}

#[test]
fn an_event_is_claimed_run_and_acked_once() {
    let mut harness = two();
    harness.publish(out("t", "1"));
    assert_eq!((harness.waiting_runs("a"), harness.waiting_runs("b")), (1, 0));
    let run = harness.ok("a");
    assert_eq!((run.attempt, run.event.body.payload.as_str()), (1, "1"));
    assert_eq!((harness.claims(), harness.endings()), (vec![], vec![Ending::Acked]));
    harness.pass(120_000);
    assert_eq!((harness.waiting_runs("a"), harness.waiting_runs("b")), (0, 0));
}

#[test]
fn late_ack_after_lease_loss_is_refused() {
    let mut harness = two();
    harness.publish(out("t", "1"));
    let late = harness.next_run("a");
    harness.pass(31_000);
    let second = harness.runs.values_mut().find_map(|runs| runs.pop_front()).expect("claimed again");
    assert_eq!(second.attempt, 2, "the expired attempt counts");
    let before = harness.rows(Space::Claims);
    harness.finish("a", &late, Ok(vec![out("u", "lost")].into_iter().collect()));
    harness.pass(100);
    assert_eq!(harness.rows(Space::Claims), before, "a stale holder changed something");
    assert!(harness.events("u").is_empty() && harness.endings().is_empty());
    assert!(harness.notes.iter().any(|note| matches!(note, Note::LeaseExpired { .. })));
}

#[test]
fn an_ack_that_was_on_its_way_when_the_lease_was_taken_over_is_refused() {
    let mut harness = two();
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    harness.hold = true;
    harness.finish("a", &run, Ok(vec![out("u", "1")]));
    let held = std::mem::take(&mut harness.held);
    harness.hold = false;
    harness.workers.remove("a").unwrap();
    harness.pass(31_000);
    assert_eq!(harness.waiting_runs("b"), 1);
    for (_, _, batch) in held {
        let outcome = millrace_store::Store::commit(&harness.store, &[batch]).unwrap().remove(0);
        assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    }
    assert!(harness.events("u").is_empty());
    harness.ok("b");
    assert_eq!(harness.endings(), [Ending::Acked]);
}

#[test]
fn completion_after_expiry_is_refused_even_if_nobody_took_over() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    harness.now.wall = harness.now.wall + 30_000;
    assert_eq!(harness.commit_run("a", &run, ensure("x", r#"{"a":1}"#)), Err(CommitError::LeaseExpired));
    harness.finish("a", &run, Ok(vec![out("u", "1")]));
    assert!(harness.endings().is_empty() && harness.events("u").is_empty());
    assert!(harness.rows(Space::Heads).is_empty());
    harness.pass(1000);
    assert_eq!(harness.next_run("a").attempt, 2);
}

#[test]
fn the_lease_ends_exactly_at_its_end() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    assert_eq!(run.lease_until, START + 30_000);
    harness.now.wall = START + 29_999;
    assert!(harness.commit_run("a", &run, ensure("x", r#"{"a":1}"#)).is_ok());
    harness.now.wall = START + 30_000;
    let late = harness.commit_run("a", &run, ensure("x", r#"{"a":2}"#));
    assert_eq!(late, Err(CommitError::LeaseExpired));
}

#[test]
fn a_worker_that_reuses_its_id_does_not_inherit_leases() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let old = harness.next_run("a");
    let ghost = harness.workers.remove("a").unwrap();
    // A worker with the same session id and seed, after the lease of the first has expired.
    harness.now.wall = harness.now.wall + 30_000;
    harness.join("a", config(), vec![handler("m:h", "t")], Vec::new());
    let new = harness.next_run("a");
    assert_eq!((&new.event.id, new.attempt), (&old.event.id, 1));
    // The first worker is still alive with a clock that is behind, and acknowledges.
    let newer = harness.workers.insert("a", ghost).unwrap();
    harness.now.wall = Timestamp(harness.now.wall.0 - 20_000);
    harness.finish("a", &old, Ok(vec![out("u", "ghost")]));
    harness.pass(100);
    assert!(harness.endings().is_empty() && harness.events("u").is_empty());
    harness.workers.insert("a", newer);
    harness.finish("a", &new, Ok(Vec::new()));
    assert_eq!(harness.endings(), [Ending::Acked]);
}

#[test]
fn leases_are_renewed_when_that_is_wanted() {
    let mut harness = Harness::new();
    let renewing = WorkerConfig { lease_renewal: true, ..config() };
    harness.join("a", renewing, vec![handler("m:h", "t")], Vec::new());
    harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    harness.pass(200_000);
    assert_eq!(harness.waiting_runs("b"), 0);
    assert!(harness.commit_run("a", &run, ensure("x", r#"{"a":1}"#)).is_ok());
    harness.finish("a", &run, Ok(Vec::new()));
    assert_eq!(harness.endings(), [Ending::Acked]);
}

#[test]
fn queued_claims_do_not_lose_attempts_by_waiting() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    for n in 0..10 {
        harness.publish(out("t", &n.to_string()));
    }
    // Every run takes ten seconds: most events wait longer than a lease.
    for _ in 0..10 {
        let run = harness.next_run("a");
        assert_eq!(run.attempt, 1);
        harness.pass(10_000);
        harness.finish("a", &run, Ok(Vec::new()));
        harness.pass(10);
    }
    assert_eq!(harness.endings(), [Ending::Acked; 10]);
}

#[test]
fn what_a_slow_worker_gives_back_others_take() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    for n in 0..4 {
        harness.publish(out("t", &n.to_string()));
    }
    let slow = harness.next_run("a");
    harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    assert_eq!(harness.waiting_runs("b"), 0, "all of them are claimed");
    harness.pass(16_100);
    for _ in 0..3 {
        assert_eq!(harness.ok("b").attempt, 1);
    }
    harness.finish("a", &slow, Ok(Vec::new()));
    assert_eq!(harness.endings(), [Ending::Acked; 4]);
}

#[test]
fn unstarted_claims_are_given_back_on_stop_without_an_attempt() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    for n in 0..5 {
        harness.publish(out("t", &n.to_string()));
    }
    let running = harness.next_run("a");
    harness.input("a", Input::Stop);
    assert!(harness.stopped.is_empty(), "a handler still runs");
    harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    for _ in 0..4 {
        assert_eq!(harness.ok("b").attempt, 1);
    }
    harness.finish("a", &running, Ok(Vec::new()));
    assert_eq!(harness.stopped, ["a"]);
    assert_eq!(harness.endings(), [Ending::Acked; 5]);
    let (_, row) = harness.rows(Space::Sessions).remove(0);
    assert!(row.contains("stopped"), "{row}");
}

#[test]
fn claims_that_land_after_a_stop_are_given_back() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.hold = true;
    harness.publish(out("t", "1"));
    assert_eq!(harness.held.len(), 1, "the claim is on its way");
    harness.input("a", Input::Stop);
    harness.release_commits();
    assert_eq!((harness.waiting_runs("a"), harness.stopped.as_slice()), (0, ["a"].as_slice()));
    assert!(harness.claims().iter().all(|claim| claim.state == ClaimState::Waiting && claim.attempts == 0));
}
