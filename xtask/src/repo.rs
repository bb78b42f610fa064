//! The location of the repository, and calls of cargo and git in it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Returns the root of the repository. Cargo sets `CARGO_MANIFEST_DIR` at run time. The path compiled in is the
/// fallback for a binary started by hand; it would be wrong in a target directory that several checkouts share.
pub(crate) fn root() -> PathBuf {
    let manifest_dir =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
    let mut root = PathBuf::from(manifest_dir);
    root.pop();
    root
}

/// Runs `cargo` with the arguments in `command`, split at spaces; an argument cannot contain a space.
pub(crate) fn cargo(command: &str) -> Result<()> {
    cargo_with(command, &[])
}

/// Like [`cargo`], with additional environment variables.
pub(crate) fn cargo_with(command: &str, variables: &[(String, String)]) -> Result<()> {
    let args: Vec<&str> = command.split(' ').collect();
    let mut cargo = cargo_command(&args);
    let status = cargo.envs(variables.iter().cloned()).status().context("cannot start cargo")?;
    if !status.success() {
        bail!("`cargo {command}` failed");
    }
    Ok(())
}

/// Asks a cargo subcommand for its version, the cheapest way to learn whether it is installed.
pub(crate) fn has_cargo_subcommand(subcommand: &str) -> bool {
    let answer = cargo_command(&[subcommand, "--version"]).output();
    answer.is_ok_and(|output| output.status.success())
}

/// Returns every file that git tracks or would track, relative to the root. A tracked file that was deleted without
/// staging the deletion is still in the list.
pub(crate) fn files() -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root())
        .output()
        .context("cannot start git")?;
    if !output.status.success() {
        bail!("`git ls-files` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(names.split_terminator('\0').map(str::to_owned).collect())
}

/// Returns the standard output of a command.
pub(crate) fn output(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).current_dir(root()).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("`{program} {}` failed", args.join(" "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns cargo's target directory, which `CARGO_TARGET_DIR` may override.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

pub(crate) fn cargo_command(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.args(args).current_dir(root());
    remove_own_variables(&mut command);
    command
}

/// Removes the variables that cargo sets for this package when it runs xtask. Build scripts of some crates watch these
/// names, and would rebuild those crates and all their dependents whenever cargo is called in turn from here and from a
/// shell.
pub(crate) fn remove_own_variables(command: &mut Command) {
    let ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(ours) {
            command.env_remove(name);
        }
    }
}
