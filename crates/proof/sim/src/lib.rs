//! The simulator: the real engines on a faulty store, under a virtual clock, driven by one seed. There are five worlds:
//! one of the bus and its clients, one of workers with durable handlers, one of the CQRS loop, one of effect runs, one
//! of `sys/loop` with its guests.
//!
//! A seed decides everything: topics, groups, clients, what goes wrong and when. The same seed gives the same run, step
//! by step, so a failure is a number. No threads, no real time, no unordered maps.
//!
//! Not here: parsing frames, opening sockets, writing files; those are tested in their own crates. The simulator knows
//! an engine only by its inputs and effects.
//!
//! Start with [`run`]; the invariants of the bus are in `check`, one file each, those of handlers in `claims/record.rs`
//! and `claims/verdict.rs`, those of the loop in `router/record.rs`, those of effect runs in `runs/record.rs`, those of
//! `sys/loop` in `reactor/record.rs` and `reactor/replies.rs`.

mod actor;
mod check;
mod claims;
mod clock;
mod cluster;
mod dice;
mod disk;
mod facts;
mod fault;
mod ledger;
mod payload;
mod place;
mod plan;
mod reactor;
mod router;
mod run;
mod runs;
mod sabotage;
mod schedule;
mod seen;
mod trace;
mod traffic;
mod words;
mod world;

pub use check::Violation;
pub use claims::Sabotage as ClaimsSabotage;
pub use cluster::Sabotage as ClusterSabotage;
pub use fault::{Fault, FaultCounts};
pub use reactor::Sabotage as ReactorSabotage;
pub use router::Sabotage as RouterSabotage;
pub use run::{
    ClaimsOptions, ClusterOptions, Options, ReactorOptions, Report, RouterOptions, RunsOptions,
    STEPS_DEFAULT, invariants, run, run_claims, run_cluster, run_reactor, run_router, run_runs,
};
pub use runs::Sabotage as RunsSabotage;
pub use sabotage::{
    ALL as SABOTAGES, CLAIMS as CLAIMS_SABOTAGES, CLUSTER as CLUSTER_SABOTAGES, REACTOR as REACTOR_SABOTAGES,
    ROUTER as ROUTER_SABOTAGES, RUNS as RUNS_SABOTAGES, expected as expected_invariants, expected_of_claims,
    expected_of_cluster, expected_of_reactor, expected_of_router, expected_of_runs, parse as parse_sabotage,
    parse_claims as parse_claims_sabotage, parse_cluster as parse_cluster_sabotage,
    parse_reactor as parse_reactor_sabotage, parse_router as parse_router_sabotage,
    parse_runs as parse_runs_sabotage,
};
pub use world::Sabotage as BusSabotage;
