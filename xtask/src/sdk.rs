//! Runs the JavaScript SDK's tests against the server that was just built.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::repo;

pub(crate) fn run() -> Result<()> {
    // `--ignore-scripts` skips the `prepare` script: the tests build the package themselves.
    npm(&["ci", "--ignore-scripts", "--no-audit", "--no-fund"])?;
    npm(&["test"])
}

fn npm(args: &[&str]) -> Result<()> {
    let status = Command::new("npm")
        .args(args)
        .current_dir(repo::root().join("sdk/js"))
        .env("MILLRACE_BIN", repo::target().join("debug/millrace"))
        .status()
        .context("cannot start npm")?;
    if !status.success() {
        bail!("`npm {}` failed in sdk/js", args.join(" "));
    }
    Ok(())
}
