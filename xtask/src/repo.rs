//! Where the repository is, and how cargo and git are called in it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Cargo names the manifest at run time. The compiled-in path serves a binary started by hand, and
/// would be wrong for a target directory that several checkouts share.
pub(crate) fn root() -> PathBuf {
    let manifest_dir =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
    let mut root = PathBuf::from(manifest_dir);
    root.pop();
    root
}

/// Runs `cargo` with the words of `command`; one that needs a blank inside an argument has no place here.
pub(crate) fn cargo(command: &str) -> Result<()> {
    let args: Vec<&str> = command.split(' ').collect();
    let status = cargo_command(&args).status().context("cannot start cargo")?;
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

/// Everything git tracks or would track, relative to the root. A tracked file that was deleted but not
/// yet staged is still in the list.
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

/// What a command prints.
pub(crate) fn output(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).current_dir(root()).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("`{program} {}` failed", args.join(" "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Where cargo puts what it builds: a target directory may be set from outside.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

pub(crate) fn cargo_command(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.args(args).current_dir(root());
    // What cargo says of this package to its program: build scripts of some crates watch these names, and would build
    // them and all that uses them again whenever cargo is called from here and from a shell in turn.
    let ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(ours) {
            command.env_remove(name);
        }
    }
    command
}
