//! Runs the tests that need Node.js against the server that was just built: those of the JavaScript SDK, and those of the
//! web console in a real browser.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::repo;

const SDK: &str = "sdk/js";
const CONSOLE: &str = "crates/faces/console/tests";

pub(crate) fn run() -> Result<()> {
    run_in(SDK)
}

pub(crate) fn run_console() -> Result<()> {
    // The program whose handlers, schedules and delayed events the console shows.
    let built = Command::new(env!("CARGO"))
        .args(["build", "--package", "millrace", "--example", "ex9_in_the_console"])
        .current_dir(repo::root())
        .status()
        .context("cannot start cargo")?;
    if !built.success() {
        bail!("the example of the console cannot be built");
    }
    run_in(CONSOLE)
}

fn run_in(folder: &str) -> Result<()> {
    // `--ignore-scripts` skips the `prepare` script: the tests build the package themselves.
    npm(folder, &["ci", "--ignore-scripts", "--no-audit", "--no-fund"])?;
    npm(folder, &["test"])
}

fn npm(folder: &str, args: &[&str]) -> Result<()> {
    let status = Command::new("npm")
        .args(args)
        .current_dir(repo::root().join(folder))
        .env("MILLRACE_BIN", repo::target().join("debug/millrace"))
        .status()
        .context("cannot start npm")?;
    if !status.success() {
        bail!("`npm {}` failed in {folder}", args.join(" "));
    }
    Ok(())
}
