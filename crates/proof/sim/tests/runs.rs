//! The world of effect runs: seeds that must pass, and checkers that must bite.

use millrace_sim::{Fault, FaultCounts, RUNS_SABOTAGES, RunsOptions, expected_of_runs, invariants, run_runs};

/// Thousands of seeds are run by hand.
const SEEDS: std::ops::Range<u64> = 1..41;

fn options(seed: u64) -> RunsOptions {
    RunsOptions { seed, steps: 2000, print_trace: false, sabotage: None }
}

#[test]
fn no_invariant_is_violated() {
    let mut faults = FaultCounts::default();
    for seed in SEEDS {
        let report = run_runs(&options(seed));
        let tail = report.tail.join("\n");
        assert_eq!(report.violation, None, "seed {seed}, last steps:\n{tail}");
        faults.merge(&report.faults);
    }
    // A world without faults would pass, too.
    for fault in [
        Fault::Cancelled,
        Fault::Refused,
        Fault::Vanished,
        Fault::DuplicateAck,
        Fault::StrayAck,
        Fault::Congested,
    ] {
        assert!(faults.of(fault) > 0, "{fault:?} never happened: {faults}");
    }
}

#[test]
fn every_sabotage_is_reported_by_the_invariant_it_breaks() {
    let known = invariants();
    for sabotage in RUNS_SABOTAGES {
        let expected = expected_of_runs(sabotage);
        assert!(expected.iter().all(|invariant| known.contains(invariant)), "{expected:?}");
        let mut reported = SEEDS.filter_map(|seed| {
            let report = run_runs(&RunsOptions { sabotage: Some(sabotage), ..options(seed) });
            report.violation.map(|violation| violation.invariant)
        });
        let hit = reported.any(|invariant| expected.contains(&invariant));
        assert!(hit, "{sabotage:?} should violate one of {expected:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 2, 17] {
        assert_eq!(run_runs(&options(seed)), run_runs(&options(seed)), "seed {seed}");
    }
}
