//! Processes are killed at random while a chain of handlers runs on one file. Whatever a process was doing when it
//! died, in the end every event has ended once per handler, the state is the fold of the acknowledged events, and the
//! chain has neither lost nor duplicated an event.
//!
//! `cargo test -p millrace --test crash -- --nocapture` prints a summary with the seed. `MILLRACE_CRASH_SEED` set to
//! that seed draws the same victims and the same pauses again.
#![allow(unreachable_pub, clippy::unwrap_used, reason = "a test may panic")]

mod chain;
mod check;
mod increments;
mod order;
mod poison;
mod process;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

use millrace::Session;
use millrace_admin::Admin;
use millrace_store::Store;

use chain::{Placed, config};
use process::{Crew, Place};

const SEED: &str = "MILLRACE_CRASH_SEED";
const PROCESSES: usize = 4;
const KILLS: u64 = 40;
/// Orders that are published between two kills.
const ORDERS_EACH: u64 = 6;
/// The longest pause before a kill, counted from the moment the chain has made progress.
const PAUSE_MS_MAX: u64 = 150;

#[test]
fn forty_kills_lose_and_double_nothing() {
    let mut draw = Draw::seeded();
    let place = Place::new();
    let session = Session::builder(&place.url()).config(config()).open().unwrap();
    let store = place.store();
    let env = vec![(process::STORE, place.url())];
    let mut crew = Crew::start(&place, "process::child", env, PROCESSES);
    for kill in 0..KILLS {
        let before = paid(&*store);
        let orders = (0..ORDERS_EACH).map(|n| Placed { order: kill * ORDERS_EACH + n });
        session.publish_all(orders).unwrap();
        // A kill is worth something only while handlers run: wait until the first handler has finished something.
        while paid(&*store) == before {
            crew.are_alive();
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(draw.below(PAUSE_MS_MAX)));
        assert!(crew.kill_and_replace(draw.below(PROCESSES as u64) as usize), "nobody ends itself");
    }
    let admin = Admin::new(store);
    while check::unfinished(&admin, &session) > 0 {
        crew.are_alive();
        std::thread::sleep(Duration::from_millis(20));
    }
    crew.stop();
    let found = check::all(&admin, &session, KILLS * ORDERS_EACH);
    drop((session, admin));
    check::doctor(&place.url());
    println!("{KILLS} kills of {PROCESSES} processes, seed {}: {found}", draw.seed);
}

/// Returns how many events the first handler has sent, plus one per stream.
fn paid(store: &dyn Store) -> u64 {
    let streams = store.streams().unwrap();
    streams.iter().filter(|bounds| bounds.stream.topic.topic() == "paid").map(|bounds| bounds.next.0).sum()
}

/// A small pseudo-random generator: the same seed gives the same numbers.
struct Draw {
    seed: u64,
    state: u64,
}

impl Draw {
    fn seeded() -> Draw {
        let seed = match std::env::var(SEED) {
            Ok(text) => text.parse().unwrap(),
            Err(_) => RandomState::new().hash_one(SEED),
        };
        // The test harness shows this line when the test fails, or with `--nocapture`.
        println!("{SEED}={seed}");
        Draw { seed, state: seed }
    }

    /// Returns a number below `end`, by SplitMix64.
    fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }
}
