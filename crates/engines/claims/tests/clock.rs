//! A wall clock that is set back or was wrong: leases and pauses still end, and nothing happens too early.

mod harness;

use harness::*;
use millrace_claims::*;
use millrace_model::*;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

fn set_back(harness: &mut Harness) {
    harness.now.wall = harness.now.wall.saturating_sub(3 * HOUR);
    harness.now.steady_since = harness.now.mono;
}

fn was_stranded(harness: &Harness) -> bool {
    harness.notes.iter().any(|note| matches!(note, Note::Stranded { offset: Offset(1), .. }))
}

#[test]
fn a_retry_comes_although_the_clock_was_set_back() {
    for restarts in [false, true] {
        let mut harness = Harness::with(vec![handler("m:h", "t")]);
        harness.publish(out("t", "1"));
        harness.fail("a");
        set_back(&mut harness);
        if restarts {
            harness.crash("a");
            harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
        }
        let who = if restarts { "b" } else { "a" };
        // The claim is seen within a refresh, and then waits for its backoff once more: 500 ms and up to 100 of jitter.
        harness.pass(config().refresh_interval_ms + 700);
        assert_eq!(harness.ok(who).attempt, 2, "restarts: {restarts}");
        assert!(was_stranded(&harness));
        assert_eq!(harness.endings(), [Ending::Acked]);
    }
}

#[test]
fn a_lease_of_the_dead_ends_although_the_clock_was_set_back() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    harness.next_run("a");
    harness.crash("a");
    set_back(&mut harness);
    harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    harness.pass(29_000);
    assert_eq!(harness.waiting_runs("b"), 0, "whoever holds it has its time");
    harness.pass(2_000);
    assert_eq!(harness.ok("b").attempt, 1, "nobody knows whether it was called");
    assert_eq!(harness.endings(), [Ending::Acked]);
}

#[test]
fn a_holder_whose_lease_was_ended_so_is_refused() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    set_back(&mut harness);
    harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    harness.pass(31_000);
    assert!(was_stranded(&harness));
    assert_eq!(harness.commit_run("a", &run, ensure("x", r#"{"a":1}"#)), Err(CommitError::LeaseExpired));
}

#[test]
fn claims_of_sessions_with_longer_leases_are_left_alone() {
    let mut harness = Harness::new();
    let long = WorkerConfig { event_claim_lease_ms: HOUR, ..config() };
    harness.join("a", long, vec![handler("m:h", "t")], Vec::new());
    harness.publish(out("t", "1"));
    harness.next_run("a");
    harness.crash("a");
    harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    harness.pass(HOUR - 1_000);
    assert_eq!((harness.waiting_runs("b"), was_stranded(&harness)), (0, false));
    harness.pass(2_000);
    assert_eq!(harness.ok("b").attempt, 1);
}

#[test]
fn nothing_goes_by_age_before_the_clock_has_settled() {
    let mut harness = Harness::new();
    let keeping = WorkerConfig { retention_interval_ms: 100_000, alone: true, ..WorkerConfig::default() };
    harness.join("a", keeping.clone(), vec![handler("m:h", "t")], Vec::new());
    harness.publish(out("t", "1"));
    harness.ok("a");
    harness.crash("a");
    // This session starts with a clock that is a month ahead and is corrected soon after.
    harness.now.wall = harness.now.wall + 31 * DAY;
    harness.now.steady_since = harness.now.mono;
    harness.join("b", keeping, vec![handler("m:h", "t")], Vec::new());
    harness.pass(300_000);
    for _ in 0..700 {
        harness.now.steady_since = harness.now.mono;
        harness.pass(1_000);
    }
    harness.now.wall = harness.now.wall.saturating_sub(31 * DAY);
    harness.now.steady_since = harness.now.mono;
    harness.pass(6 * DAY);
    assert_eq!(harness.payloads("t"), ["1"]);
    harness.pass(2 * DAY);
    assert!(harness.payloads("t").is_empty());
}

#[test]
fn a_clock_that_is_wrong_at_the_start_and_stays_wrong_removes_nothing() {
    let mut harness = Harness::new();
    let keeping = WorkerConfig { retention_interval_ms: 100_000, alone: true, ..WorkerConfig::default() };
    harness.join("a", keeping.clone(), vec![handler("m:h", "t")], Vec::new());
    harness.publish(out("t", "1"));
    harness.ok("a");
    harness.crash("a");
    harness.now.wall = harness.now.wall + 31 * DAY;
    harness.now.steady_since = harness.now.mono;
    harness.join("b", keeping, vec![handler("m:h", "t")], Vec::new());
    // An event of the session itself carries the wrong time, which is no reason to believe the clock.
    harness.publish(out("t", "2"));
    harness.ok("b");
    harness.pass(CLOCK_SETTLE_MS + 6 * DAY);
    assert_eq!(harness.payloads("t"), ["1", "2"]);
    // Seven days have passed since the session started: that counts whatever the clock shows.
    harness.pass(DAY + HOUR);
    assert_eq!(harness.payloads("t"), ["2"]);
}

/// Events and rows written by a session with a wrong clock do not make a later session believe that clock.
#[test]
fn sessions_that_start_again_and_again_with_a_wrong_clock_remove_nothing() {
    let mut harness = Harness::new();
    let keeping = WorkerConfig { retention_interval_ms: 100_000, ..WorkerConfig::default() };
    harness.join("a", keeping.clone(), vec![handler("m:h", "t")], Vec::new());
    harness.publish(out("t", "1"));
    harness.ok("a");
    harness.crash("a");
    harness.now.wall = harness.now.wall + 31 * DAY;
    for who in ["b", "c", "d"] {
        harness.now.steady_since = harness.now.mono;
        harness.join(who, keeping.clone(), vec![handler("m:h", "t")], Vec::new());
        harness.publish(out("t", "2"));
        harness.ok(who);
        harness.pass(CLOCK_SETTLE_MS + HOUR);
        harness.crash(who);
    }
    assert_eq!(harness.payloads("t"), ["1", "2", "2", "2"]);
}
