//! The fuzz targets as programs: built by the stable compiler, with coverage counters in the code.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::repo;

const MANIFEST: &str = "fuzz/Cargo.toml";

/// With these flags LLVM counts which edges of the code an input reaches, and reports compared values to libFuzzer.
/// They apply to every crate, but not to build scripts and macros, because `--target` is given.
const FLAGS: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

pub(super) struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    pub(super) fn build() -> Result<Binaries> {
        let platform = platform()?;
        cargo(&["build", "--bins"], &platform)?;
        Ok(Binaries { folder: target_folder().join(platform).join("release") })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes the seed inputs of a target into its corpus.
    pub(super) fn write_seeds(&self, target: &str, corpus: &Path) -> Result<()> {
        let mut command = Command::new(self.path("seeds"));
        let status = command.arg(target).arg(corpus).status().context("cannot start `seeds`")?;
        if !status.success() {
            bail!("the seeds of {target} could not be written to {}", corpus.display());
        }
        Ok(())
    }
}

/// Runs the tests of the targets' own code.
pub(super) fn test() -> Result<()> {
    cargo(&["test", "--lib"], &platform()?)
}

/// Returns the target folder of the fuzz builds. They have their own, because the flags change every crate.
fn target_folder() -> PathBuf {
    repo::target().join("fuzz")
}

fn cargo(verb: &[&str], platform: &str) -> Result<()> {
    let mut command = repo::cargo_command(verb);
    command.args(["--release", "--manifest-path", MANIFEST, "--target", platform]);
    command.arg("--target-dir").arg(target_folder());
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", FLAGS.join(" "));
    if !command.status().context("cannot start cargo")?.success() {
        bail!("`cargo {}` failed in fuzz", verb.join(" "));
    }
    Ok(())
}

/// Returns the name of this platform, as the compiler calls it.
fn platform() -> Result<String> {
    let version = repo::output("rustc", &["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not tell its host")
}
