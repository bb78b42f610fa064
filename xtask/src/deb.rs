//! `cargo xtask deb`: builds a Debian package, and the stage of the tests that builds one and uses it.
//!
//! Written here and not by a packaging crate, because a package is a folder that `dpkg-deb` packs: everything in it is
//! a file of `packaging/` or an output of the binary itself.

mod check;
mod contents;
mod package;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::{needs, repo};

const COMMANDS: [&str; 3] = ["dpkg-deb", "gzip", "strip"];
const CHECK_COMMANDS: [&str; 2] = ["lintian", "systemd-analyze"];
const BUILD: &str = "build --profile dist --locked --package millrace-cli";
const BUILT: &str = "dist/millrace";

pub(crate) fn run(args: &[&str]) -> Result<()> {
    let binary = match args {
        ["--check", path] => return check_package_of(&PathBuf::from(path)),
        [] => None,
        ["--binary", path] => Some(PathBuf::from(path)),
        other => bail!(
            "deb takes --binary FILE or --check FILE (a binary that is built already), not {}",
            other.join(" ")
        ),
    };
    needs::ensure_commands(|command| COMMANDS.contains(&command))?;
    let binary = match binary {
        Some(binary) => binary,
        None => {
            repo::cargo(BUILD)?;
            repo::target().join(BUILT)
        }
    };
    let package = package::build(&binary, package::Compression::Small)?;
    println!("{}", package.display());
    Ok(())
}

/// Builds a package from the binary that was just built for the tests, and checks it.
pub(crate) fn test() -> Result<()> {
    check_package_of(&repo::target().join("debug/millrace"))
}

fn check_package_of(binary: &Path) -> Result<()> {
    needs::ensure_commands(|command| COMMANDS.contains(&command) || CHECK_COMMANDS.contains(&command))?;
    let package = package::build(binary, package::Compression::Fast)?;
    check::run_all(&package)
}
