//! `millrace man DIR`: writes the manual pages, one per command. For packages; hidden, because users have `--help`.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};

use crate::failure::Failure;

pub(super) fn command() -> Command {
    Command::new("man")
        .about("Write the manual pages into a folder, which is created if it does not exist")
        .hide(true)
        .arg(Arg::new("folder").value_name("DIR").required(true).value_parser(value_parser!(PathBuf)))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some(folder) = matches.get_one::<PathBuf>("folder") else { return Ok(()) };
    let written =
        std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(super::for_people(), folder));
    written.map_err(|error| {
        Failure::Failed(format!("cannot write manual pages to {}: {error}", folder.display()))
    })
}
