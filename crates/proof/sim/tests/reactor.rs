//! The world of `sys/loop`: seeds that must pass, and checkers that must bite.

use millrace_sim::{
    Fault, FaultCounts, REACTOR_SABOTAGES, ReactorOptions, expected_of_reactor, invariants, run_reactor,
};

/// Thousands of seeds are run by hand.
const SEEDS: std::ops::Range<u64> = 1..41;

fn options(seed: u64) -> ReactorOptions {
    ReactorOptions { seed, steps: 2000, print_trace: false, sabotage: None }
}

#[test]
fn no_invariant_is_violated() {
    let mut faults = FaultCounts::default();
    for seed in SEEDS {
        let report = run_reactor(&options(seed));
        let tail = report.tail.join("\n");
        assert_eq!(report.violation, None, "seed {seed}, last steps:\n{tail}");
        faults.merge(&report.faults);
    }
    // A world without faults would pass, too.
    for fault in [
        Fault::BadFrame,
        Fault::HandleEnded,
        Fault::NoSpace,
        Fault::LateReport,
        Fault::Interrupted,
        Fault::Refused,
        Fault::Stop,
    ] {
        assert!(faults.of(fault) > 0, "{fault:?} never happened: {faults}");
    }
}

#[test]
fn every_sabotage_is_reported_by_the_invariant_it_breaks() {
    let known = invariants();
    for sabotage in REACTOR_SABOTAGES {
        let expected = expected_of_reactor(sabotage);
        assert!(expected.iter().all(|invariant| known.contains(invariant)), "{expected:?}");
        let mut reported = SEEDS.filter_map(|seed| {
            let report = run_reactor(&ReactorOptions { sabotage: Some(sabotage), ..options(seed) });
            report.violation.map(|violation| violation.invariant)
        });
        let hit = reported.any(|invariant| expected.contains(&invariant));
        assert!(hit, "{sabotage:?} should violate one of {expected:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 2, 17] {
        assert_eq!(run_reactor(&options(seed)), run_reactor(&options(seed)), "seed {seed}");
    }
}

#[test]
fn different_seeds_give_different_traces() {
    assert_ne!(run_reactor(&options(1)).trace_hash, run_reactor(&options(2)).trace_hash);
}
