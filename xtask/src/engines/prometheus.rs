//! Prometheus and its `promtool`, from Debian's package, for the test of dashboard and alerts. The test starts it: it
//! has to be told which server to watch.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::debian::Apt;
use super::install;
use crate::needs;

/// The variable with the folder of the programs.
const VARIABLE: &str = "TEST_PROMETHEUS_BIN";
const PROGRAMS: [&str; 2] = ["prometheus", "promtool"];

/// Returns whether anything was missing and is installed now.
pub(super) fn install(folder: &Path) -> Result<bool> {
    if programs(folder).is_some() {
        return Ok(false);
    }
    if needs::find("apt-get").is_none() {
        bail!("install Prometheus, or set {VARIABLE} to the folder of its programs");
    }
    // The package's needs are files of a web page that nobody looks at here.
    install::once(&unpacked(folder), |to| Apt::of_system(to)?.unpack(&["prometheus"]))?;
    match programs(folder) {
        Some(_) => Ok(true),
        None => bail!("no Prometheus was found in {}: remove that folder", unpacked(folder).display()),
    }
}

/// Returns the variable by which the test finds the programs.
pub(super) fn variable(folder: &Path) -> Result<(String, String)> {
    let programs = programs(folder).context("Prometheus is gone since it was installed")?;
    Ok((VARIABLE.to_owned(), programs.display().to_string()))
}

/// Looks where the variable says, on the path, and where the package was unpacked.
fn programs(folder: &Path) -> Option<PathBuf> {
    let given = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let on_path = needs::find("promtool").and_then(|path| Some(path.parent()?.to_owned()));
    let folders = given.into_iter().chain(on_path).chain([unpacked(folder).join("usr/bin")]);
    folders.into_iter().find(|folder| PROGRAMS.iter().all(|program| folder.join(program).exists()))
}

fn unpacked(folder: &Path) -> PathBuf {
    folder.join("prometheus")
}
