//! `millrace bench bus|store`: measured paths beside a disk probe of the same run.

use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, Command, value_parser};
use millrace_bench::{
    BUS_SCENARIOS, BenchError, BenchOptions, Report, STORE_SCENARIOS, bench_bus, bench_store,
};

use crate::commands::json_flag;
use crate::commands::progress::Steps;
use crate::failure::Failure;
use crate::output::Output;

type Bench = fn(&BenchOptions, &mut dyn FnMut(&str)) -> Result<Report, BenchError>;

pub(super) fn command() -> Command {
    Command::new("bench")
        .about("Measure the server or the store, each figure beside a raw disk probe")
        .subcommand_required(true)
        .subcommand(verb(
            "bus",
            "Start a server on a temporary folder and load it over its sockets",
            BUS_SCENARIOS,
        ))
        .subcommand(verb("store", "Load the embedded store alone", STORE_SCENARIOS))
}

fn verb(name: &'static str, about: &'static str, scenarios: &[(&str, bool)]) -> Command {
    let names: Vec<&str> = scenarios.iter().map(|(name, _)| *name).collect();
    let by_default: Vec<&str> =
        scenarios.iter().filter(|(_, default)| *default).map(|(name, _)| *name).collect();
    let number = |name: &'static str, parser: ValueParser, default: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("N").value_parser(parser).default_value(default).help(help)
    };
    Command::new(name)
        .about(about)
        .arg(Arg::new("scenario").long("scenario").value_name("NAME,...").value_delimiter(',').help(format!(
            "Any of {} [default: {}]",
            names.join(", "),
            by_default.join(",")
        )))
        .arg(number("rounds", value_parser!(u32).range(1..).into(), "3", "Rounds; medians are reported"))
        .arg(number("seconds", value_parser!(f64).into(), "2", "Duration of each timed load"))
        .arg(number(
            "payload-bytes",
            value_parser!(u32).range(64..=65_536).into(),
            "256",
            "Bytes per payload",
        ))
        .arg(number("log-events", value_parser!(u64).range(100..).into(), "1000000", "Events in a long log"))
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("The disk to measure: temporary folders go here [default: the system's]"),
        )
        .arg(json_flag())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("bus", matches)) => measure(matches, bench_bus),
        Some(("store", matches)) => measure(matches, bench_store),
        _ => Ok(()),
    }
}

fn measure(matches: &ArgMatches, bench: Bench) -> Result<(), Failure> {
    let program =
        std::env::current_exe().map_err(|error| Failure::Failed(format!("cannot find myself: {error}")))?;
    let options = BenchOptions {
        folder: matches.get_one::<PathBuf>("dir").cloned(),
        rounds: matches.get_one::<u32>("rounds").map_or(3, |rounds| *rounds as usize),
        seconds: matches.get_one::<f64>("seconds").copied().unwrap_or(2.0),
        payload_bytes: matches.get_one::<u32>("payload-bytes").map_or(256, |bytes| *bytes as usize),
        scenarios: matches.get_many::<String>("scenario").unwrap_or_default().cloned().collect(),
        log_events: matches.get_one::<u64>("log-events").copied().unwrap_or(1_000_000),
        program,
    };
    if !(options.seconds > 0.0 && options.seconds <= 3600.0) {
        return Err(Failure::Usage(format!(
            "--seconds is {}: it must be above 0, at most 3600",
            options.seconds
        )));
    }
    let steps = Steps::new();
    let report = bench(&options, &mut |step| steps.say(step)).map_err(|error| match error {
        BenchError::UnknownScenario { .. } => Failure::Usage(error.to_string()),
        error => Failure::Failed(error.to_string()),
    });
    drop(steps);
    let report = report?;
    let mut out = Output::new();
    match matches.get_flag("json") {
        true => out.json(&report)?,
        false => out.line(report.to_string().trim_end())?,
    }
    out.flush()
}
