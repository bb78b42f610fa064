//! `cargo xtask peers`: builds the server and the load driver for release and becomes the driver.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Result, bail};

use crate::repo;

/// One after the other: built together, cargo would give the server the features that only the driver asks for, and
/// it would not be the server that users run.
const BUILDS: [&str; 2] =
    ["build --release --package millrace-cli", "build --release --package millrace-peers"];

/// The driver takes this process's place, so that a signal to `cargo xtask peers` reaches whoever holds the servers.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    for build in BUILDS {
        repo::cargo(build)?;
    }
    let built = repo::target().join("release");
    let mut driver = Command::new(built.join("millrace-peers"));
    driver.current_dir(repo::root()).arg("--millrace").arg(built.join("millrace"));
    let names_it = |arg: &&str| *arg == "--scratch" || arg.starts_with("--scratch=");
    if !args.iter().any(names_it) {
        driver.arg("--scratch").arg(repo::target().join("peers"));
    }
    let error = driver.args(args).exec();
    bail!("cannot start the load driver: {error}")
}
