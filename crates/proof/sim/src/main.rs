//! `millrace-sim`: runs seeds, prints a line for each, stops at the first failure.

use std::process::ExitCode;
use std::time::Instant;

use millrace_sim::{
    ClaimsOptions, ClusterOptions, FaultCounts, Options, ReactorOptions, Report, RouterOptions, RunsOptions,
    STEPS_DEFAULT, parse_claims_sabotage, parse_cluster_sabotage, parse_reactor_sabotage,
    parse_router_sabotage, parse_runs_sabotage, parse_sabotage, run, run_claims, run_cluster, run_reactor,
    run_router, run_runs,
};

const USAGE: &str =
    "usage: millrace-sim [--seeds N] [--start N] [--seed N] [--steps N] [--trace] [--keep-going]
                    [--world NAME] [--sabotage NAME]

  --seeds N        run N seeds (100), beginning at --start (1)
  --seed N         run one seed
  --steps N        steps of each seed before the calm (4000)
  --trace          print every step
  --keep-going     do not stop at the first seed that fails
  --world NAME     bus, claims, router, runs, reactor or cluster; left out, seeds take turns
  --sabotage NAME  break the engine on purpose, to see the checkers bite";

struct Args {
    first: u64,
    count: u64,
    steps: u64,
    print_trace: bool,
    keep_going: bool,
    world: Option<World>,
    sabotage: Option<millrace_sim::BusSabotage>,
    claims_sabotage: Option<millrace_sim::ClaimsSabotage>,
    router_sabotage: Option<millrace_sim::RouterSabotage>,
    runs_sabotage: Option<millrace_sim::RunsSabotage>,
    reactor_sabotage: Option<millrace_sim::ReactorSabotage>,
    cluster_sabotage: Option<millrace_sim::ClusterSabotage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum World {
    Bus,
    Claims,
    Router,
    Runs,
    Reactor,
    Cluster,
}

impl World {
    fn name(self) -> &'static str {
        match self {
            World::Bus => "bus",
            World::Claims => "claims",
            World::Router => "router",
            World::Runs => "runs",
            World::Reactor => "reactor",
            World::Cluster => "cluster",
        }
    }
}

impl Args {
    fn world_of(&self, seed: u64) -> World {
        let by_seed = match seed % 6 {
            1 => World::Bus,
            2 => World::Claims,
            3 => World::Runs,
            4 => World::Reactor,
            5 => World::Cluster,
            _ => World::Router,
        };
        self.world.unwrap_or(by_seed)
    }

    fn run(&self, seed: u64) -> Report {
        let &Args { steps, print_trace, sabotage, claims_sabotage, router_sabotage, .. } = self;
        let &Args { runs_sabotage, reactor_sabotage, cluster_sabotage, .. } = self;
        match self.world_of(seed) {
            World::Bus => run(&Options { seed, steps, print_trace, sabotage }),
            World::Claims => {
                run_claims(&ClaimsOptions { seed, steps, print_trace, sabotage: claims_sabotage })
            }
            World::Router => {
                run_router(&RouterOptions { seed, steps, print_trace, sabotage: router_sabotage })
            }
            World::Runs => run_runs(&RunsOptions { seed, steps, print_trace, sabotage: runs_sabotage }),
            World::Reactor => {
                run_reactor(&ReactorOptions { seed, steps, print_trace, sabotage: reactor_sabotage })
            }
            World::Cluster => {
                run_cluster(&ClusterOptions { seed, steps, print_trace, sabotage: cluster_sabotage })
            }
        }
    }
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(problem) => {
            eprintln!("{problem}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    let (mut failed, mut steps, mut simulated_ms, mut faults) = (Vec::new(), 0, 0, FaultCounts::default());
    for seed in args.first..args.first.saturating_add(args.count) {
        let report = args.run(seed);
        print_line(args.world_of(seed), &report);
        steps += report.steps;
        simulated_ms += report.simulated_ms;
        faults.merge(&report.faults);
        if report.violation.is_some() {
            print_failure(&args, &report);
            failed.push(seed);
            if !args.keep_going {
                break;
            }
        }
    }
    println!(
        "{} of {} seeds failed{}; {steps} steps, {} s simulated in {:.1} s; {faults}",
        failed.len(),
        args.count,
        if failed.is_empty() { String::new() } else { format!(" {failed:?}") },
        simulated_ms / 1000,
        began.elapsed().as_secs_f64(),
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_line(world: World, report: &Report) {
    let Report { seed, steps, simulated_ms, trace_hash, faults, .. } = report;
    let seconds = *simulated_ms as f64 / 1000.0;
    println!(
        "{:<7} seed {seed:>5}  steps {steps:>6}  simulated {seconds:>8.3} s  trace {trace_hash:016x}  {faults}",
        world.name(),
    );
}

fn print_failure(args: &Args, report: &Report) {
    let Some(violation) = &report.violation else { return };
    println!("\nseed {} violates {violation}\n\nthe last steps:", report.seed);
    report.tail.iter().for_each(|line| println!("{line}"));
    let sabotage = args.sabotage.map(|sabotage| format!("{sabotage:?}"));
    let sabotage = sabotage.or(args.claims_sabotage.map(|sabotage| format!("{sabotage:?}")));
    let sabotage = sabotage.or(args.router_sabotage.map(|sabotage| format!("{sabotage:?}")));
    let sabotage = sabotage.or(args.runs_sabotage.map(|sabotage| format!("{sabotage:?}")));
    let sabotage = sabotage.or(args.reactor_sabotage.map(|sabotage| format!("{sabotage:?}")));
    let sabotage = sabotage.or(args.cluster_sabotage.map(|sabotage| format!("{sabotage:?}")));
    let sabotage = sabotage.map_or(String::new(), |name| format!(" --sabotage {name}"));
    let world = args.world_of(report.seed).name();
    let (seed, steps) = (report.seed, args.steps);
    println!(
        "\nreplay: cargo run -p millrace-sim -- --world {world} --seed {seed} --steps {steps}{sabotage} --trace\n"
    );
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args {
        first: 1,
        count: 100,
        steps: STEPS_DEFAULT,
        print_trace: false,
        keep_going: false,
        world: None,
        sabotage: None,
        claims_sabotage: None,
        router_sabotage: None,
        runs_sabotage: None,
        reactor_sabotage: None,
        cluster_sabotage: None,
    };
    while let Some(flag) = words.next() {
        let mut value = || words.next().ok_or(format!("{flag} needs a value"));
        let number =
            |text: String| text.parse::<u64>().map_err(|_| format!("{text:?} is not a whole number"));
        match flag.as_str() {
            "--seeds" => args.count = number(value()?)?,
            "--start" => args.first = number(value()?)?,
            "--seed" => (args.first, args.count) = (number(value()?)?, 1),
            "--steps" => args.steps = number(value()?)?,
            "--trace" => args.print_trace = true,
            "--keep-going" => args.keep_going = true,
            "--sabotage" => {
                let name = value()?;
                args.sabotage = parse_sabotage(&name);
                args.claims_sabotage = parse_claims_sabotage(&name);
                args.router_sabotage = parse_router_sabotage(&name);
                args.runs_sabotage = parse_runs_sabotage(&name);
                args.reactor_sabotage = parse_reactor_sabotage(&name);
                args.cluster_sabotage = parse_cluster_sabotage(&name);
                args.world = match (args.sabotage, args.claims_sabotage, args.router_sabotage) {
                    (Some(_), _, _) => Some(World::Bus),
                    (_, Some(_), _) => Some(World::Claims),
                    (_, _, Some(_)) => Some(World::Router),
                    _ if args.runs_sabotage.is_some() => Some(World::Runs),
                    _ if args.reactor_sabotage.is_some() => Some(World::Reactor),
                    _ if args.cluster_sabotage.is_some() => Some(World::Cluster),
                    _ => return Err(format!("there is no sabotage {name:?}")),
                };
            }
            "--world" => {
                args.world = match value()?.as_str() {
                    "bus" => Some(World::Bus),
                    "claims" => Some(World::Claims),
                    "router" => Some(World::Router),
                    "runs" => Some(World::Runs),
                    "reactor" => Some(World::Reactor),
                    "cluster" => Some(World::Cluster),
                    other => {
                        return Err(format!(
                            "there is no world {other:?}: bus, claims, router, runs, reactor or cluster"
                        ));
                    }
                };
            }
            _ => return Err(format!("{flag:?} is not a flag")),
        }
    }
    Ok(args)
}
