//! Leases: which session holds an event, until when, and that a session which lost it can write nothing.

mod desk;

use desk::*;
use millrace_claims::*;
use millrace_model::*;

fn two() -> Desk {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    desk
}

#[test]
fn an_event_is_claimed_run_and_acked_once() {
    let mut desk = two();
    desk.publish(out("t", "1"));
    assert_eq!((desk.waiting("a"), desk.waiting("b")), (1, 0));
    let run = desk.ok("a");
    assert_eq!((run.attempt, run.event.body.payload.as_str()), (1, "1"));
    assert_eq!((desk.claims(), desk.endings()), (vec![], vec![Ending::Acked]));
    desk.pass(120_000);
    assert_eq!((desk.waiting("a"), desk.waiting("b")), (0, 0));
}

#[test]
fn late_ack_after_lease_loss_is_refused() {
    let mut desk = two();
    desk.publish(out("t", "1"));
    let late = desk.take("a");
    desk.pass(31_000);
    let second = desk.runs.values_mut().find_map(|runs| runs.pop_front()).expect("claimed again");
    assert_eq!(second.attempt, 2, "the expired try counts");
    let before = desk.rows(Space::Claims);
    desk.finish("a", &late, Ok(vec![out("u", "lost")].into_iter().collect()));
    desk.pass(100);
    assert_eq!(desk.rows(Space::Claims), before, "a stale holder changed something");
    assert!(desk.events("u").is_empty() && desk.endings().is_empty());
    assert!(desk.notes.iter().any(|note| matches!(note, Note::LeaseExpired { .. })));
}

#[test]
fn an_ack_that_was_on_its_way_when_the_lease_was_taken_over_is_refused() {
    let mut desk = two();
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    desk.hold = true;
    desk.finish("a", &run, Ok(vec![out("u", "1")]));
    let held = std::mem::take(&mut desk.held);
    desk.hold = false;
    desk.workers.remove("a").unwrap();
    desk.pass(31_000);
    assert_eq!(desk.waiting("b"), 1);
    for (_, _, batch) in held {
        let outcome = millrace_store::Store::commit(&desk.store, &[batch]).unwrap().remove(0);
        assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    }
    assert!(desk.events("u").is_empty());
    desk.ok("b");
    assert_eq!(desk.endings(), [Ending::Acked]);
}

#[test]
fn completion_after_expiry_is_refused_even_if_nobody_took_over() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    desk.now.wall = desk.now.wall + 30_000;
    assert_eq!(desk.commit_run("a", &run, ensure("x", r#"{"a":1}"#)), Err(CommitError::LeaseExpired));
    desk.finish("a", &run, Ok(vec![out("u", "1")]));
    assert!(desk.endings().is_empty() && desk.events("u").is_empty());
    assert!(desk.rows(Space::Heads).is_empty());
    desk.pass(1000);
    assert_eq!(desk.take("a").attempt, 2);
}

#[test]
fn the_lease_ends_exactly_at_its_end() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    assert_eq!(run.lease_until, START + 30_000);
    desk.now.wall = START + 29_999;
    assert!(desk.commit_run("a", &run, ensure("x", r#"{"a":1}"#)).is_ok());
    desk.now.wall = START + 30_000;
    let late = desk.commit_run("a", &run, ensure("x", r#"{"a":2}"#));
    assert_eq!(late, Err(CommitError::LeaseExpired));
}

#[test]
fn a_worker_that_reuses_its_id_does_not_inherit_leases() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    let old = desk.take("a");
    let ghost = desk.workers.remove("a").unwrap();
    // A worker with the same session id and seed, after the lease of the first has expired.
    desk.now.wall = desk.now.wall + 30_000;
    desk.join("a", config(), vec![handler("m:h", "t")], Vec::new());
    let new = desk.take("a");
    assert_eq!((&new.event.id, new.attempt), (&old.event.id, 1));
    // The first worker is still alive with a clock that is behind, and acknowledges.
    let newer = desk.workers.insert("a", ghost).unwrap();
    desk.now.wall = Timestamp(desk.now.wall.0 - 20_000);
    desk.finish("a", &old, Ok(vec![out("u", "ghost")]));
    desk.pass(100);
    assert!(desk.endings().is_empty() && desk.events("u").is_empty());
    desk.workers.insert("a", newer);
    desk.finish("a", &new, Ok(Vec::new()));
    assert_eq!(desk.endings(), [Ending::Acked]);
}

#[test]
fn leases_are_renewed_when_that_is_wanted() {
    let mut desk = Desk::new();
    let renewing = WorkerConfig { lease_renewal: true, ..config() };
    desk.join("a", renewing, vec![handler("m:h", "t")], Vec::new());
    desk.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    desk.pass(200_000);
    assert_eq!(desk.waiting("b"), 0);
    assert!(desk.commit_run("a", &run, ensure("x", r#"{"a":1}"#)).is_ok());
    desk.finish("a", &run, Ok(Vec::new()));
    assert_eq!(desk.endings(), [Ending::Acked]);
}

#[test]
fn queued_claims_do_not_lose_attempts_by_waiting() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    for n in 0..10 {
        desk.publish(out("t", &n.to_string()));
    }
    // Every run takes ten seconds: most events wait longer than a lease.
    for _ in 0..10 {
        let run = desk.take("a");
        assert_eq!(run.attempt, 1);
        desk.pass(10_000);
        desk.finish("a", &run, Ok(Vec::new()));
        desk.pass(10);
    }
    assert_eq!(desk.endings(), [Ending::Acked; 10]);
}

#[test]
fn what_a_slow_worker_gives_back_others_take() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    for n in 0..4 {
        desk.publish(out("t", &n.to_string()));
    }
    let slow = desk.take("a");
    desk.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    assert_eq!(desk.waiting("b"), 0, "all of them are claimed");
    desk.pass(16_100);
    for _ in 0..3 {
        assert_eq!(desk.ok("b").attempt, 1);
    }
    desk.finish("a", &slow, Ok(Vec::new()));
    assert_eq!(desk.endings(), [Ending::Acked; 4]);
}

#[test]
fn unstarted_claims_are_given_back_on_stop_without_an_attempt() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    for n in 0..5 {
        desk.publish(out("t", &n.to_string()));
    }
    let running = desk.take("a");
    desk.input("a", Input::Stop);
    assert!(desk.stopped.is_empty(), "a handler still runs");
    desk.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    for _ in 0..4 {
        assert_eq!(desk.ok("b").attempt, 1);
    }
    desk.finish("a", &running, Ok(Vec::new()));
    assert_eq!(desk.stopped, ["a"]);
    assert_eq!(desk.endings(), [Ending::Acked; 5]);
    let (_, row) = desk.rows(Space::Sessions).remove(0);
    assert!(row.contains("stopped"), "{row}");
}

#[test]
fn claims_that_land_after_a_stop_are_given_back() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.hold = true;
    desk.publish(out("t", "1"));
    assert_eq!(desk.held.len(), 1, "the claim is on its way");
    desk.input("a", Input::Stop);
    desk.let_go();
    assert_eq!((desk.waiting("a"), desk.stopped.as_slice()), (0, ["a"].as_slice()));
    assert!(desk.claims().iter().all(|claim| claim.state == ClaimState::Waiting && claim.attempts == 0));
}
