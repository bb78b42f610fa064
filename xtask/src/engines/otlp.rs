//! OpenTelemetry's definitions of its protocol, from PyPI: the test of traces reads with them what the server exports.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::install;

/// The variable with the folder of the packages, for `PYTHONPATH`.
const VARIABLE: &str = "TEST_OTLP_PYTHON";
const VERSION: &str = "1.45.2";

/// Returns whether anything was missing and is installed now.
pub(super) fn install(folder: &Path) -> Result<bool> {
    install::once(&packages(folder), |to| install::pip(to, &[&format!("opentelemetry-proto=={VERSION}")]))
}

pub(super) fn variable(folder: &Path) -> (String, String) {
    (VARIABLE.to_owned(), packages(folder).display().to_string())
}

fn packages(folder: &Path) -> PathBuf {
    folder.join(format!("opentelemetry-proto-{VERSION}"))
}
