//! A wall clock that is set back or was wrong: leases and pauses still end, and nothing happens too early.

mod desk;

use desk::*;
use millrace_claims::*;
use millrace_model::*;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

fn set_back(desk: &mut Desk) {
    desk.now.wall = desk.now.wall.saturating_sub(3 * HOUR);
    desk.now.steady_since = desk.now.mono;
}

fn was_stranded(desk: &Desk) -> bool {
    desk.notes.iter().any(|note| matches!(note, Note::Stranded { offset: Offset(1), .. }))
}

#[test]
fn a_retry_comes_although_the_clock_was_set_back() {
    for restarts in [false, true] {
        let mut desk = Desk::with(vec![handler("m:h", "t")]);
        desk.publish(out("t", "1"));
        desk.fail("a");
        set_back(&mut desk);
        if restarts {
            desk.crash("a");
            desk.join("b", config(), vec![handler("m:h", "t")], Vec::new());
        }
        let who = if restarts { "b" } else { "a" };
        // The claim is seen within a refresh, and then waits for its backoff once more: 500 ms and up to 100 of jitter.
        desk.pass(config().refresh_interval_ms + 700);
        assert_eq!(desk.ok(who).attempt, 2, "restarts: {restarts}");
        assert!(was_stranded(&desk));
        assert_eq!(desk.endings(), [Ending::Acked]);
    }
}

#[test]
fn a_lease_of_the_dead_ends_although_the_clock_was_set_back() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    desk.take("a");
    desk.crash("a");
    set_back(&mut desk);
    desk.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    desk.pass(29_000);
    assert_eq!(desk.waiting("b"), 0, "whoever holds it has its time");
    desk.pass(2_000);
    assert_eq!(desk.ok("b").attempt, 1, "nobody knows whether it was called");
    assert_eq!(desk.endings(), [Ending::Acked]);
}

#[test]
fn a_holder_whose_lease_was_ended_so_is_refused() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    let run = desk.take("a");
    set_back(&mut desk);
    desk.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    desk.pass(31_000);
    assert!(was_stranded(&desk));
    assert_eq!(desk.commit_run("a", &run, ensure("x", r#"{"a":1}"#)), Err(CommitError::LeaseExpired));
}

#[test]
fn claims_of_sessions_with_longer_leases_are_left_alone() {
    let mut desk = Desk::new();
    let long = WorkerConfig { event_claim_lease_ms: HOUR, ..config() };
    desk.join("a", long, vec![handler("m:h", "t")], Vec::new());
    desk.publish(out("t", "1"));
    desk.take("a");
    desk.crash("a");
    desk.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    desk.pass(HOUR - 1_000);
    assert_eq!((desk.waiting("b"), was_stranded(&desk)), (0, false));
    desk.pass(2_000);
    assert_eq!(desk.ok("b").attempt, 1);
}

#[test]
fn nothing_goes_by_age_before_the_clock_has_settled() {
    let mut desk = Desk::new();
    let keeping = WorkerConfig { retention_interval_ms: 100_000, alone: true, ..WorkerConfig::default() };
    desk.join("a", keeping.clone(), vec![handler("m:h", "t")], Vec::new());
    desk.publish(out("t", "1"));
    desk.ok("a");
    desk.crash("a");
    // This session starts with a clock that is a month ahead and is corrected soon after.
    desk.now.wall = desk.now.wall + 31 * DAY;
    desk.now.steady_since = desk.now.mono;
    desk.join("b", keeping, vec![handler("m:h", "t")], Vec::new());
    desk.pass(300_000);
    for _ in 0..700 {
        desk.now.steady_since = desk.now.mono;
        desk.pass(1_000);
    }
    desk.now.wall = desk.now.wall.saturating_sub(31 * DAY);
    desk.now.steady_since = desk.now.mono;
    desk.pass(6 * DAY);
    assert_eq!(desk.payloads("t"), ["1"]);
    desk.pass(2 * DAY);
    assert!(desk.payloads("t").is_empty());
}

#[test]
fn a_clock_that_is_wrong_at_the_start_and_stays_wrong_removes_nothing() {
    let mut desk = Desk::new();
    let keeping = WorkerConfig { retention_interval_ms: 100_000, alone: true, ..WorkerConfig::default() };
    desk.join("a", keeping.clone(), vec![handler("m:h", "t")], Vec::new());
    desk.publish(out("t", "1"));
    desk.ok("a");
    desk.crash("a");
    desk.now.wall = desk.now.wall + 31 * DAY;
    desk.now.steady_since = desk.now.mono;
    desk.join("b", keeping, vec![handler("m:h", "t")], Vec::new());
    // An event of the session itself carries the wrong time, which is no reason to believe the clock.
    desk.publish(out("t", "2"));
    desk.ok("b");
    desk.pass(CLOCK_SETTLE_MS + 6 * DAY);
    assert_eq!(desk.payloads("t"), ["1", "2"]);
    // Seven days have passed since the session started: that counts whatever the clock shows.
    desk.pass(DAY + HOUR);
    assert_eq!(desk.payloads("t"), ["2"]);
}

/// Events and rows written by a session with a wrong clock do not make a later session believe that clock.
#[test]
fn sessions_that_start_again_and_again_with_a_wrong_clock_remove_nothing() {
    let mut desk = Desk::new();
    let keeping = WorkerConfig { retention_interval_ms: 100_000, ..WorkerConfig::default() };
    desk.join("a", keeping.clone(), vec![handler("m:h", "t")], Vec::new());
    desk.publish(out("t", "1"));
    desk.ok("a");
    desk.crash("a");
    desk.now.wall = desk.now.wall + 31 * DAY;
    for who in ["b", "c", "d"] {
        desk.now.steady_since = desk.now.mono;
        desk.join(who, keeping.clone(), vec![handler("m:h", "t")], Vec::new());
        desk.publish(out("t", "2"));
        desk.ok(who);
        desk.pass(CLOCK_SETTLE_MS + HOUR);
        desk.crash(who);
    }
    assert_eq!(desk.payloads("t"), ["1", "2", "2", "2"]);
}
