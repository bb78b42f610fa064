//! `millrace bench soak`: runs a server at half of its peak load for a long time, with consumers that disconnect,
//! refuse events or read slowly.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};
use millrace_bench::{SoakOptions, SoakReport, bench_soak};

use crate::commands::bench::{dir_arg, failure, interruptible, myself, payload_arg};
use crate::commands::json_flag;
use crate::commands::progress::say_line;
use crate::failure::Failure;
use crate::output::Output;

const MINUTES_MAX: f64 = 7.0 * 24.0 * 60.0;

pub(super) fn command() -> Command {
    Command::new("soak")
        .about("Run a server at half of its peak and check that it stays well")
        .long_about(
            "Run a server at half of its peak and check that it stays well: 50 consumers in 10 groups on 4 topics of 2 \
             partitions, with random disconnects, NACKs, slow readers and events that nobody wants.\n\nA line every 30 s \
             goes to stderr. At the end publishing stops, the groups catch up, and it must be true that: every confirmed \
             event was acknowledged or dead-lettered in every group; lag is zero; retention took nothing from a group; \
             memory is flat (judged from 3 minutes on); the server stops on SIGTERM; `doctor` finds a whole store.\n\n\
             Exit codes: 0 all of it is true, 1 something is not",
        )
        .arg(
            Arg::new("minutes")
                .long("minutes")
                .value_name("N")
                .value_parser(value_parser!(f64))
                .default_value("20")
                .help("Duration, 0.02 or more; the peak is measured before"),
        )
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("N")
                .value_parser(value_parser!(u64))
                .default_value("1")
                .help("Of the consumers' dice"),
        )
        .arg(payload_arg())
        .arg(dir_arg())
        .arg(json_flag())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let minutes = matches.get_one::<f64>("minutes").copied().unwrap_or(20.0);
    if !(0.02..=MINUTES_MAX).contains(&minutes) {
        return Err(Failure::Usage(format!("--minutes is {minutes}: it must be from 0.02 to {MINUTES_MAX}")));
    }
    let options = SoakOptions {
        folder: matches.get_one::<PathBuf>("dir").cloned(),
        minutes,
        seed: matches.get_one::<u64>("seed").copied().unwrap_or(1),
        payload_bytes: matches.get_one::<u32>("payload-bytes").map_or(256, |bytes| *bytes as usize),
        program: myself()?,
        stop: interruptible()?,
    };
    let report: SoakReport =
        bench_soak(&options, &mut say_line).map_err(|error| failure(error, &options.stop))?;
    let mut out = Output::new();
    match matches.get_flag("json") {
        true => out.json(&report)?,
        false => out.line(report.to_string().trim_end())?,
    }
    out.flush()?;
    let failed: Vec<&str> =
        report.checks.iter().filter(|check| !check.passed).map(|check| check.what).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Failed(format!("not true: {}", failed.join("; ")))),
    }
}
