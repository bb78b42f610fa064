//! `cargo xtask peers`: builds the server and the load driver in release mode, then replaces itself by the driver.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Result, bail};

use crate::repo;

/// Built one after the other: in a joint build, cargo would unify features, so the server would get features that only
/// the driver asks for and would not be the server that users run.
const BUILDS: [&str; 2] =
    ["build --release --package millrace-cli", "build --release --package millrace-peers"];

/// Replaces this process by the driver (exec), so that a signal to `cargo xtask peers` reaches the process that owns
/// the started servers.
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
