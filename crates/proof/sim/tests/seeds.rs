//! Seeds that must pass: the engine as it is, under every fault the world knows.

use millrace_sim::{Fault, FaultCounts, Options, run};

/// Enough for every kind of fault to meet every other now and then; thousands are run by hand.
const SEEDS: std::ops::Range<u64> = 1..61;

fn options(seed: u64) -> Options {
    Options { seed, steps: 3000, print_trace: false, sabotage: None }
}

#[test]
fn no_invariant_is_violated() {
    let mut faults = FaultCounts::default();
    for seed in SEEDS {
        let report = run(&options(seed));
        let tail = report.tail.join("\n");
        assert_eq!(report.violation, None, "seed {seed}, last steps:\n{tail}");
        faults.merge(&report.faults);
    }
    // A world without faults would pass, too.
    for fault in [
        Fault::Kill,
        Fault::PowerLoss,
        Fault::LostCommit,
        Fault::CommitFailed,
        Fault::CommitSlow,
        Fault::ReadFailed,
        Fault::Stop,
        Fault::WallStep,
        Fault::Disconnect,
        Fault::Vanished,
        Fault::LateAck,
        Fault::DuplicateAck,
        Fault::StrayAck,
        Fault::Nack,
        Fault::GiveBack,
        Fault::Congested,
        Fault::Unsubscribe,
        Fault::Seek,
        Fault::Reset,
        Fault::Grow,
        Fault::DeleteTopic,
        Fault::FilterConflict,
        Fault::Resent,
    ] {
        assert!(faults.of(fault) > 0, "{fault:?} never happened: {faults}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 2, 3, 17, 42, 4711] {
        let (first, second) = (run(&options(seed)), run(&options(seed)));
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn different_seeds_give_different_traces() {
    assert_ne!(run(&options(1)).trace_hash, run(&options(2)).trace_hash);
}
