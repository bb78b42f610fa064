//! Runs the real `inbox.rs`, `jobs.rs` and `schedule.rs` on the threads of a model checker (shuttle), which chooses who
//! goes on at every lock, wake-up and step of the model: two workers, three edges, a row writer and an end.
//!
//! The engine, the disk, the clients and the clock are the model's (`broker.rs`, `world.rs`). When nobody goes on by
//! itself, `world.rs` checks that nothing waits for a thread that sleeps. `tests/schedule_explorer` visits all states of
//! the schedule; this test covers the code around it.
#![allow(dead_code, unreachable_pub, reason = "the model does not use all of the inbox, and exports nothing")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../src/inbox.rs"]
mod inbox;
#[path = "../../src/jobs.rs"]
mod jobs;
#[path = "../../src/schedule.rs"]
mod schedule;

mod broker;
mod sync;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use broker::{Scenario, run};
use schedule::Wake;
use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};

const RANDOM: usize = 20_000;
/// Interleavings with this many forced changes of the running thread.
const PCT: usize = 5000;
const PCT_DEPTHS: [usize; 3] = [2, 3, 5];
/// Not all there are: they are more than a test can run. `tests/schedule_explorer` visits states instead.
const DEPTH_FIRST: usize = 20_000;

/// Every kind of trouble together.
const TROUBLE: Scenario =
    Scenario { edges: 3, requests: 2, rows: 2, retries: 1, failures: 1, is_orderly: false, left_out: None };
/// The end comes when everything is done, so everything must be done.
const ORDERLY: Scenario = Scenario { failures: 0, is_orderly: true, ..TROUBLE };
const TINY: Scenario = Scenario { requests: 1, rows: 0, retries: 0, ..ORDERLY };

/// Returns how many interleavings were run.
fn check(scenario: Scenario, scheduler: impl Scheduler + 'static) -> usize {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.failure_persistence = FailurePersistence::None;
    Runner::new(scheduler, config).run(move || run(scenario))
}

#[test]
fn random_interleavings_keep_the_promises() {
    for scenario in [TROUBLE, ORDERLY, TINY] {
        let count = check(scenario, RandomScheduler::new_from_seed(16, RANDOM));
        println!("{scenario:?}: {count} random interleavings");
    }
}

#[test]
fn interleavings_with_few_forced_changes_keep_the_promises() {
    for scenario in [TROUBLE, ORDERLY] {
        for depth in PCT_DEPTHS {
            let count = check(scenario, PctScheduler::new_from_seed(16, depth, PCT));
            println!("{scenario:?}: {count} interleavings of depth {depth}");
        }
    }
}

#[test]
fn the_first_interleavings_depth_first_keep_the_promises() {
    let scenario = Scenario { edges: 1, ..TINY };
    let count = check(scenario, DfsScheduler::new(Some(DEPTH_FIRST), true));
    println!("{scenario:?}: {count} interleavings depth first");
}

#[test]
fn a_wake_up_that_is_left_out_is_found_whatever_its_reason() {
    for wake in [Wake::Arrival, Wake::Turn, Wake::Commit, Wake::Alarm, Wake::LastInline, Wake::End] {
        let scenario = Scenario { left_out: Some(wake), ..TROUBLE };
        let found =
            catch_unwind(AssertUnwindSafe(|| check(scenario, RandomScheduler::new_from_seed(16, RANDOM))));
        world::forget();
        let Err(panic) = found else { panic!("no interleaving shows that a wake-up is missing: {wake:?}") };
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap();
        println!("without {wake:?}: {text}");
        // Words of the checks in `world.rs`: no other panic counts.
        assert!(text.contains("sleeps") || text.contains("and nobody"), "{text}");
    }
}
