//! Visits every state that a small broker can reach, with the real `schedule.rs`: two workers, edges that send inline
//! or not, a reader, a row writer, a disk that fails or writes nothing, an engine that panics, and an end at any moment.
//!
//! The inbox changes its schedule only under one lock, so a step of this model is what one thread does between taking
//! and releasing that lock; waking a sleeper is a step of its own. `tests/schedule_model` checks the lock itself.
#![allow(dead_code, reason = "the schedule is compiled without the inbox")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../src/schedule.rs"]
mod schedule;

mod check;
mod search;
mod steps;
mod world;

use schedule::Wake;
use search::{Found, explore, walk};
use world::{Budget, World};

const WAKES: [Wake; 6] = [Wake::Arrival, Wake::Turn, Wake::Commit, Wake::Alarm, Wake::LastInline, Wake::End];

/// Small brokers, each with another kind of trouble; together they have every kind.
fn small_brokers(left_out: Option<Wake>) -> [(&'static str, World); 9] {
    let quiet = Budget { sends: [1, 1], ticks: 1, end: true, ..Budget::default() };
    let settled = |budget| World::new(budget, left_out).settled();
    [
        ("a start", World::new(Budget { sends: [1, 0], ..quiet }, left_out)),
        ("two edges", settled(quiet)),
        (
            "completions and rows",
            settled(Budget { sends: [1, 0], completions: 1, rows: 1, ticks: 0, ..quiet }),
        ),
        // A commit is under way when one edge gathers, and the other comes when that is over.
        ("edges that gather", settled(Budget { rows: 1, ticks: 0, end: false, ..quiet })),
        ("a flood", settled(Budget { floods: 1, sends: [1, 0], rows: 1, ..quiet })),
        ("news of others", settled(Budget { news: 2, sends: [1, 0], ..quiet })),
        ("a commit that writes nothing", settled(Budget { retries: 1, sends: [1, 0], ticks: 2, ..quiet })),
        ("a store that fails", settled(Budget { sends: [1, 0], rows: 1, failures: 1, ..quiet })),
        ("an engine that panics", settled(Budget { sends: [1, 1], panics: 1, ticks: 0, ..quiet })),
    ]
}

#[test]
fn every_state_of_a_small_broker_keeps_the_promises() {
    let mut total = Found::default();
    for (name, world) in small_brokers(None) {
        let found = explore(world).unwrap_or_else(|violation| panic!("{name}: {violation}"));
        println!("{name}: {found:?}");
        total.states += found.states;
        total.steps += found.steps;
        total.ends += found.ends;
        total.depth = total.depth.max(found.depth);
    }
    println!("together: {total:?}");
    assert!(total.ends > 0, "no broker has ended: the model stands still");
}

#[test]
fn a_wake_up_that_is_left_out_is_found_whatever_its_reason() {
    for wake in WAKES {
        let mut violations = small_brokers(Some(wake))
            .into_iter()
            .filter_map(|(name, world)| Some((name, explore(world).err()?)));
        let Some((name, violation)) = violations.next() else {
            panic!("no state shows that a wake-up is missing: {wake:?}");
        };
        println!("without {wake:?}, {name}: {violation}\n");
    }
}

#[test]
fn long_walks_of_a_larger_broker_keep_the_promises() {
    let budget = Budget {
        sends: [30, 30],
        floods: 5,
        completions: 20,
        rows: 20,
        news: 20,
        retries: 10,
        failures: 1,
        panics: 1,
        ticks: 400,
        end: true,
    };
    let mut steps = 0;
    for seed in 0..2000 {
        steps += walk(World::new(budget, None), seed)
            .unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
    println!("{steps} steps");
}
