//! Runs one seed, from the beginning of its world to the verdict.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::check::{Checkers, Violation};
use crate::claims::{ClaimsWorld, INVARIANTS};
use crate::cluster::{ClusterWorld, INVARIANTS as CLUSTER_INVARIANTS};
use crate::fault::FaultCounts;
use crate::reactor::{INVARIANTS as REACTOR_INVARIANTS, ReactorWorld};
use crate::router::{INVARIANTS as ROUTER_INVARIANTS, RouterWorld};
use crate::runs::{INVARIANTS as RUNS_INVARIANTS, RunsWorld};
use crate::trace::Trace;
use crate::world::{Sabotage, World};

/// Steps of a seed before the calm, unless an option says otherwise.
pub const STEPS_DEFAULT: u64 = 4000;

#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    pub steps: u64,
    pub print_trace: bool,
    pub sabotage: Option<Sabotage>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub seed: u64,
    pub steps: u64,
    pub simulated_ms: u64,
    pub trace_hash: u64,
    pub faults: FaultCounts,
    pub violation: Option<Violation>,
    /// The last steps before the verdict, as lines of the trace.
    pub tail: Vec<String>,
}

impl Report {
    /// The report of a world, whichever it was.
    fn of(
        seed: u64,
        steps: u64,
        simulated_ms: u64,
        trace: &Trace,
        faults: &FaultCounts,
        verdict: Result<(), Violation>,
    ) -> Report {
        let (trace_hash, tail) = (trace.hash(), trace.tail());
        Report {
            seed,
            steps,
            simulated_ms,
            trace_hash,
            faults: faults.clone(),
            violation: verdict.err(),
            tail,
        }
    }
}

pub fn run(options: &Options) -> Report {
    let mut world = World::new(options.seed, options.sabotage, options.print_trace);
    let verdict = caught(|| world.run(options.steps));
    let (steps, simulated_ms) = (world.steps, world.simulated_ms());
    Report::of(options.seed, steps, simulated_ms, &world.trace, &world.faults, verdict)
}

/// A seed of the world of workers (`claims.rs`).
#[derive(Clone, Debug)]
pub struct ClaimsOptions {
    pub seed: u64,
    pub steps: u64,
    pub print_trace: bool,
    pub sabotage: Option<crate::claims::Sabotage>,
}

pub fn run_claims(options: &ClaimsOptions) -> Report {
    let mut world = ClaimsWorld::new(options.seed, options.sabotage, options.print_trace);
    let verdict = caught(|| world.run(options.steps));
    let (steps, simulated_ms) = (world.steps, world.simulated_ms());
    Report::of(options.seed, steps, simulated_ms, &world.trace, &world.faults, verdict)
}

/// A seed of the world of the CQRS loop (`router.rs`).
#[derive(Clone, Debug)]
pub struct RouterOptions {
    pub seed: u64,
    pub steps: u64,
    pub print_trace: bool,
    pub sabotage: Option<crate::router::Sabotage>,
}

pub fn run_router(options: &RouterOptions) -> Report {
    let mut world = RouterWorld::new(options.seed, options.sabotage, options.print_trace);
    let verdict = caught(|| world.run(options.steps));
    let (steps, simulated_ms) = (world.steps, world.simulated_ms());
    Report::of(options.seed, steps, simulated_ms, &world.trace, &world.faults, verdict)
}

/// A seed of the world of effect runs (`runs.rs`).
#[derive(Clone, Debug)]
pub struct RunsOptions {
    pub seed: u64,
    pub steps: u64,
    pub print_trace: bool,
    pub sabotage: Option<crate::runs::Sabotage>,
}

pub fn run_runs(options: &RunsOptions) -> Report {
    let mut world = RunsWorld::new(options.seed, options.sabotage, options.print_trace);
    let verdict = caught(|| world.run(options.steps));
    let (steps, simulated_ms) = (world.steps, world.simulated_ms());
    Report::of(options.seed, steps, simulated_ms, &world.trace, &world.faults, verdict)
}

/// A seed of the world of `sys/loop` (`reactor.rs`).
#[derive(Clone, Debug)]
pub struct ReactorOptions {
    pub seed: u64,
    pub steps: u64,
    pub print_trace: bool,
    pub sabotage: Option<crate::reactor::Sabotage>,
}

pub fn run_reactor(options: &ReactorOptions) -> Report {
    let mut world = ReactorWorld::new(options.seed, options.sabotage, options.print_trace);
    let verdict = caught(|| world.run(options.steps));
    let (steps, simulated_ms) = (world.steps, world.simulated_ms());
    Report::of(options.seed, steps, simulated_ms, &world.trace, &world.faults, verdict)
}

/// A seed of the world of a cluster (`cluster.rs`).
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    pub seed: u64,
    pub steps: u64,
    pub print_trace: bool,
    pub sabotage: Option<crate::cluster::Sabotage>,
}

pub fn run_cluster(options: &ClusterOptions) -> Report {
    let mut world = ClusterWorld::new(options.seed, options.steps, options.sabotage, options.print_trace);
    let verdict = caught(|| world.run());
    let (steps, simulated_ms) = (world.steps(), world.simulated_ms());
    let (trace, faults) = world.take_records();
    Report::of(options.seed, steps, simulated_ms, &trace, &faults, verdict)
}

/// A panic of the engine fails the seed like a violation, so that the steps that led there are still shown.
fn caught(run: impl FnOnce() -> Result<(), Violation>) -> Result<(), Violation> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let detail = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned();
        Err(Violation { invariant: "never_panics", detail })
    })
}

/// The names of all invariants that are checked.
pub fn invariants() -> Vec<&'static str> {
    let mut names = Checkers::all().names();
    names.extend(["stop_ends", "restores", "never_panics"]);
    let worlds = [
        &INVARIANTS[..],
        &ROUTER_INVARIANTS[..],
        &RUNS_INVARIANTS[..],
        &REACTOR_INVARIANTS[..],
        &CLUSTER_INVARIANTS[..],
    ];
    for world in worlds {
        names.extend(world.iter().filter(|name| !names.contains(name)).copied().collect::<Vec<_>>());
    }
    names
}
