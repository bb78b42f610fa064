//! The simulator: the real bus engine on a faulty store, under a virtual clock, driven by one seed.
//!
//! A seed decides everything: topics, groups, clients, what goes wrong and when. The same seed gives the same run, step
//! by step, so a failure is a number. No threads, no real time, no unordered maps.
//!
//! What it does not do: it does not parse frames, open sockets or write files; those are tested where they live. It
//! knows the engine only by its inputs and effects.
//!
//! Start with [`run`]; the invariants are in `check`, one file each.

mod actor;
mod check;
mod clock;
mod dice;
mod disk;
mod facts;
mod fault;
mod ledger;
mod payload;
mod place;
mod plan;
mod run;
mod sabotage;
mod schedule;
mod seen;
mod trace;
mod traffic;
mod words;
mod world;

pub use check::Violation;
pub use fault::{Fault, FaultCounts};
pub use run::{Options, Report, STEPS_DEFAULT, invariants, run};
pub use sabotage::{ALL as SABOTAGES, expected as expected_invariants, parse as parse_sabotage};
