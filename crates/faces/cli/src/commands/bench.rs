//! `millrace bench bus|store|handlers|engines|router|runs|loop|growth`: benchmarks, each beside a probe of the machine or
//! the engine in the same run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, Command, value_parser};
use millrace_bench::{
    BUS_SCENARIOS, BenchError, BenchOptions, BenchReport, ENGINE_SCENARIOS, EngineOptions, GrowthOptions,
    HANDLER_SCENARIOS, LOOP_SCENARIOS, ROUTER_SCENARIOS, RUNS_SCENARIOS, STORE_SCENARIOS, bench_bus,
    bench_engines, bench_growth, bench_handlers, bench_handlers_worker, bench_loop, bench_router, bench_runs,
    bench_store,
};

use crate::commands::connect::interrupted;
use crate::commands::progress::Steps;
use crate::commands::{bench_soak, json_flag};
use crate::failure::Failure;
use crate::output::Output;

pub(super) fn command() -> Command {
    Command::new("bench")
        .about("Measure the server, the store, shared engines, durable handlers or effect runs, each figure beside a probe; or soak a server")
        .subcommand_required(true)
        .subcommand(
            with_scenarios(
                Command::new("bus")
                    .about("Start a server on a temporary folder and load it over its sockets"),
                BUS_SCENARIOS,
            )
            .args(common_args())
            .arg(long_log_arg()),
        )
        .subcommand(
            with_scenarios(Command::new("store").about("Load the embedded store alone"), STORE_SCENARIOS)
                .args(common_args())
                .arg(long_log_arg()),
        )
        .subcommand(
            with_scenarios(
                Command::new("handlers")
                    .about("Run durable handlers on a temporary store, in this process and in eight"),
                HANDLER_SCENARIOS,
            )
            .args(common_args())
            .arg(number(
                "events",
                value_parser!(u64).range(100..).into(),
                "1000000",
                "Finished events that `retained` keeps",
            )),
        )
        .subcommand(
            with_scenarios(
                Command::new("engines")
                    .about("Start servers on shared stores and load them, beside raw requests of their engines"),
                ENGINE_SCENARIOS,
            )
            .args(engines_args())
            .args(common_args()),
        )
        .subcommand(
            with_scenarios(
                Command::new("router")
                    .about("Ping the CQRS loop over its Unix socket, beside a raw echo of the same bytes"),
                ROUTER_SCENARIOS,
            )
            .args(common_args())
            .arg(number(
                "requests",
                value_parser!(u64).range(1000..).into(),
                "1000000",
                "Requests that `memory` makes",
            )),
        )
        .subcommand(
            with_scenarios(
                Command::new("runs").about("Run scripted guests and wasm programs on the scheduler of effect runs"),
                RUNS_SCENARIOS,
            )
            .args(runs_args()),
        )
        .subcommand(
            with_scenarios(
                Command::new("loop").about("Poll, arm and wait in `sys/loop` as a zABI guest does, beside a bare epoll"),
                LOOP_SCENARIOS,
            )
            .args(runs_args()),
        )
        .subcommand(
            Command::new("handlers-worker")
                .about("A process of `bench handlers`, told by its stdin what to do")
                .hide(true)
                .arg(payload_arg()),
        )
        .subcommand(
            Command::new("growth")
                .about("Fill a server with events, topics and groups and compare it with a fresh one")
                .arg(number("events", value_parser!(u64).range(1..).into(), "10000000", "Events to fill in"))
                .arg(number(
                    "topics",
                    value_parser!(u64).range(1..=9000).into(),
                    "1000",
                    "Topics of these events",
                ))
                .arg(number(
                    "groups",
                    value_parser!(u64).range(1..=9000).into(),
                    "100",
                    "Groups that read them",
                ))
                .args(common_args()),
        )
        .subcommand(bench_soak::command())
}

fn number(name: &'static str, parser: ValueParser, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("N").value_parser(parser).default_value(default).help(help)
}

fn with_scenarios(command: Command, scenarios: &[(&str, bool)]) -> Command {
    let names: Vec<&str> = scenarios.iter().map(|(name, _)| *name).collect();
    let by_default: Vec<&str> =
        scenarios.iter().filter(|(_, default)| *default).map(|(name, _)| *name).collect();
    command.arg(
        Arg::new("scenario").long("scenario").value_name("NAME,...").value_delimiter(',').help(format!(
            "Any of {} [default: {}]",
            names.join(", "),
            by_default.join(",")
        )),
    )
}

fn common_args() -> [Arg; 5] {
    let [rounds, seconds, json] = runs_args();
    [rounds, seconds, payload_arg(), dir_arg(), json]
}

/// Returns the arguments of a benchmark without a disk and without payloads.
fn runs_args() -> [Arg; 3] {
    [
        number("rounds", value_parser!(u32).range(1..).into(), "3", "Rounds; medians are reported"),
        number("seconds", value_parser!(f64).into(), "2", "Duration of each timed load"),
        json_flag(),
    ]
}

fn engines_args() -> [Arg; 4] {
    [
        Arg::new("store")
            .long("store")
            .value_name("URL,...")
            .value_delimiter(',')
            .required(true)
            .help("Stores to measure, any of sqlite, dir, postgres, s3, gs, az, mongodb. Each load makes a store of its own beside what the URL names, and removes it"),
        number(
            "log-events",
            value_parser!(u64).range(256..).into(),
            "200000",
            "Events that `fold` puts into the journal",
        ),
        number("kills", value_parser!(u32).range(1..).into(), "5", "How often `takeover` ends the leader"),
        Arg::new("lead-timeout-ms")
            .long("lead-timeout-ms")
            .value_name("N")
            .value_parser(value_parser!(u64).range(500..))
            .help("Lead timeout of the servers of `takeover` [default: the engine's own]"),
    ]
}

fn long_log_arg() -> Arg {
    number("log-events", value_parser!(u64).range(100..).into(), "1000000", "Events in a long log")
}

pub(super) fn payload_arg() -> Arg {
    number("payload-bytes", value_parser!(u32).range(64..=65_536).into(), "256", "Bytes per payload")
}

fn payload_bytes(matches: &ArgMatches) -> usize {
    matches.try_get_one::<u32>("payload-bytes").ok().flatten().map_or(256, |bytes| *bytes as usize)
}

pub(super) fn dir_arg() -> Arg {
    Arg::new("dir")
        .long("dir")
        .value_name("DIR")
        .value_parser(value_parser!(PathBuf))
        .help("The disk to measure: temporary folders go here [default: the system's]")
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("bus", matches)) => measure(matches, bench_bus),
        Some(("store", matches)) => measure(matches, bench_store),
        Some(("handlers", matches)) => measure(matches, bench_handlers),
        Some(("engines", matches)) => {
            let engines = EngineOptions {
                stores: matches.get_many::<String>("store").unwrap_or_default().cloned().collect(),
                kills: matches.get_one::<u32>("kills").copied().unwrap_or(1),
                lead_timeout_ms: matches.get_one::<u64>("lead-timeout-ms").copied(),
            };
            measure(matches, |options, progress| bench_engines(options, &engines, progress))
        }
        Some(("router", matches)) => measure(matches, bench_router),
        Some(("runs", matches)) => measure(matches, bench_runs),
        Some(("loop", matches)) => measure(matches, bench_loop),
        Some(("handlers-worker", matches)) => {
            bench_handlers_worker(payload_bytes(matches)).map_err(|error| Failure::Failed(error.to_string()))
        }
        Some(("growth", matches)) => {
            let count = |name: &str| matches.get_one::<u64>(name).copied().unwrap_or(1);
            let growth =
                GrowthOptions { events: count("events"), topics: count("topics"), groups: count("groups") };
            measure(matches, |options, progress| bench_growth(options, growth, progress))
        }
        Some(("soak", matches)) => bench_soak::run(matches),
        _ => Ok(()),
    }
}

fn measure(
    matches: &ArgMatches,
    bench: impl FnOnce(&BenchOptions, &mut dyn FnMut(&str)) -> Result<BenchReport, BenchError>,
) -> Result<(), Failure> {
    // Not every subcommand has every argument.
    let scenarios = matches.try_get_many::<String>("scenario").ok().flatten();
    let log_events = |name: &str| matches.try_get_one::<u64>(name).ok().flatten();
    let log_events =
        log_events("log-events").or_else(|| log_events("events")).or_else(|| log_events("requests"));
    let options = BenchOptions {
        folder: matches.try_get_one::<PathBuf>("dir").ok().flatten().cloned(),
        rounds: matches.get_one::<u32>("rounds").map_or(3, |rounds| *rounds as usize),
        seconds: matches.get_one::<f64>("seconds").copied().unwrap_or(2.0),
        payload_bytes: payload_bytes(matches),
        scenarios: scenarios.unwrap_or_default().cloned().collect(),
        log_events: log_events.copied().unwrap_or(1_000_000),
        program: myself()?,
        stop: interruptible()?,
    };
    if !(options.seconds > 0.0 && options.seconds <= 3600.0) {
        return Err(Failure::Usage(format!(
            "--seconds is {}: it must be above 0, at most 3600",
            options.seconds
        )));
    }
    let steps = Steps::new();
    let report = bench(&options, &mut |step| steps.say(step)).map_err(|error| failure(error, &options.stop));
    drop(steps);
    let report = report?;
    let mut out = Output::new();
    match matches.get_flag("json") {
        true => out.json(&report)?,
        false => out.line(report.to_string().trim_end())?,
    }
    out.flush()
}

/// Returns the path of this program, which is also the server under test.
pub(super) fn myself() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::Failed(format!("cannot find myself: {error}")))
}

/// Returns a flag that becomes true at a signal. The run then ends and removes its server and its files, which may be
/// gigabytes. A second signal exits at once, without the cleanup.
pub(super) fn interruptible() -> Result<Arc<AtomicBool>, Failure> {
    let wrong = |error: std::io::Error| Failure::Failed(format!("cannot listen for signals: {error}"));
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(wrong)?;
    let seen = stop.clone();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(interrupted());
            seen.store(true, Ordering::Relaxed);
            runtime.block_on(interrupted());
            std::process::exit(130);
        })
        .map_err(wrong)?;
    Ok(stop)
}

/// Converts an error. After a signal every error counts as the interrupt: the signal also ends the server under test,
/// which breaks the load.
pub(super) fn failure(error: BenchError, stop: &AtomicBool) -> Failure {
    match error {
        _ if stop.load(Ordering::Relaxed) => Failure::Interrupted(None),
        BenchError::UnknownScenario { .. } | BenchError::StoreUrl(_) => Failure::Usage(error.to_string()),
        error => Failure::Failed(error.to_string()),
    }
}
