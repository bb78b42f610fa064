//! The counters of a worker.

mod harness;

use harness::*;

#[test]
fn a_worker_counts_how_runs_ended_and_that_nothing_impossible_happened() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    harness.publish(out("t", "2"));
    harness.ok("a");
    harness.fail("a");
    harness.pass(100);
    let counts = harness.workers["a"].counts();
    assert_eq!((counts.runs.succeeded, counts.runs.failed, counts.broken), (1, 1, 0));
}
