//! `millrace completions SHELL`.

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::{Shell, generate};

use crate::failure::Failure;
use crate::output::Output;

pub(super) fn command() -> Command {
    Command::new("completions")
        .about("Print a completion script for a shell")
        .arg(Arg::new("shell").value_name("SHELL").required(true).value_parser(value_parser!(Shell)))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some(shell) = matches.get_one::<Shell>("shell") else { return Ok(()) };
    // Generate into memory first: the generator panics when the pipe on stdout is closed.
    let mut script = Vec::new();
    generate(*shell, &mut super::for_people(), "millrace", &mut script);
    let mut out = Output::new();
    out.line(String::from_utf8_lossy(&script).trim_end())?;
    out.flush()
}
