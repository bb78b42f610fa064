//! The checkers bite: every deliberate bug of the engine is reported, and by the invariant it breaks.

use millrace_sim::{Options, SABOTAGES, expected_invariants, invariants, run};

/// A bug that shows only at a rare moment may hide in many seeds, not in all of these.
const SEEDS: std::ops::Range<u64> = 1..200;

#[test]
fn every_sabotage_is_reported_by_the_invariant_it_breaks() {
    for sabotage in SABOTAGES {
        let expected = expected_invariants(sabotage);
        let mut reported = Vec::new();
        let hit = SEEDS.into_iter().any(|seed| {
            let report = run(&Options { seed, steps: 2000, print_trace: false, sabotage: Some(sabotage) });
            reported.extend(report.violation.map(|violation| violation.invariant));
            reported.last().is_some_and(|invariant| expected.contains(invariant))
        });
        assert!(hit, "{sabotage:?} should violate one of {expected:?}, reported were {reported:?}");
    }
}

#[test]
fn what_is_expected_of_a_sabotage_exists() {
    let known = invariants();
    for sabotage in SABOTAGES {
        for invariant in expected_invariants(sabotage) {
            assert!(known.contains(invariant), "{invariant} is not an invariant");
        }
    }
}
