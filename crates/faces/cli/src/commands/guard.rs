//! `millrace capability-guard`: the server starts each child process through this command. The command asks the system
//! to be killed when the server ends, then becomes the child (exec). The command is not meant for users, so the help
//! does not show it.

use std::ffi::OsString;

use clap::{Arg, ArgMatches, Command, value_parser};
use millrace_child::become_guarded;

use crate::failure::Failure;

pub(super) const NAME: &str = "capability-guard";

pub(super) fn command() -> Command {
    Command::new(NAME)
        .about("Becomes a command that is killed when its parent ends; used by `millrace serve` for [[capability]]")
        .hide(true)
        .arg(Arg::new("parent").long("parent").value_name("PID").required(true).value_parser(value_parser!(u32)))
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .required(true)
                .num_args(1..)
                .last(true)
                .value_parser(value_parser!(OsString)),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let parent = matches.get_one::<u32>("parent").copied().unwrap_or_default();
    let command: Vec<OsString> =
        matches.get_many::<OsString>("command").unwrap_or_default().cloned().collect();
    let program = command.first().cloned().unwrap_or_default();
    let error = become_guarded(parent, &command);
    Err(Failure::Failed(format!("cannot start {}: {error}", program.display())))
}
