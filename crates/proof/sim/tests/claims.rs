//! The world of workers: seeds that must pass, and checkers that must bite.

use millrace_sim::{
    CLAIMS_SABOTAGES, ClaimsOptions, Fault, FaultCounts, expected_of_claims, invariants, run_claims,
};

/// Thousands of seeds are run by hand.
const SEEDS: std::ops::Range<u64> = 1..21;

fn options(seed: u64) -> ClaimsOptions {
    ClaimsOptions { seed, steps: 2000, print_trace: false, sabotage: None }
}

#[test]
fn no_invariant_is_violated() {
    let mut faults = FaultCounts::default();
    for seed in SEEDS {
        let report = run_claims(&options(seed));
        let tail = report.tail.join("\n");
        assert_eq!(report.violation, None, "seed {seed}, last steps:\n{tail}");
        faults.merge(&report.faults);
    }
    // A world without faults would pass, too.
    for fault in [
        Fault::Kill,
        Fault::CommitFailed,
        Fault::CommitSlow,
        Fault::ReadFailed,
        Fault::Stop,
        Fault::WallStep,
        Fault::Vanished,
        Fault::Trimmed,
        Fault::HandlerKill,
    ] {
        assert!(faults.of(fault) > 0, "{fault:?} never happened: {faults}");
    }
}

#[test]
fn every_sabotage_is_reported_by_the_invariant_it_breaks() {
    let known = invariants();
    for sabotage in CLAIMS_SABOTAGES {
        let expected = expected_of_claims(sabotage);
        assert!(expected.iter().all(|invariant| known.contains(invariant)), "{expected:?}");
        let reported = SEEDS.filter_map(|seed| {
            let report = run_claims(&ClaimsOptions { sabotage: Some(sabotage), ..options(seed) });
            report.violation.map(|violation| violation.invariant)
        });
        // The first seed that shows the bug is enough.
        let hit = reported.take(20).any(|invariant| expected.contains(&invariant));
        assert!(hit, "{sabotage:?} should violate one of {expected:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 2, 17] {
        assert_eq!(run_claims(&options(seed)), run_claims(&options(seed)), "seed {seed}");
    }
}
