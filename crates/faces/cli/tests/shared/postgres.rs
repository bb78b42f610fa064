//! PostgreSQL's own programs.

use std::path::PathBuf;
use std::process::Command;

use crate::private::program_of;

/// Returns the folder of PostgreSQL's programs.
pub fn postgres_bin() -> Option<PathBuf> {
    let bin = program_of("TEST_POSTGRES_BIN")?;
    bin.join("initdb").exists().then_some(bin)
}

/// Runs SQL as the administrator of an engine, and returns what it printed. `url` may be that of a store.
#[track_caller]
pub fn psql(url: &str, sql: &str) -> String {
    let database = url.split('?').next().unwrap();
    let bin = std::env::var("TEST_POSTGRES_BIN").map(|folder| format!("{folder}/")).unwrap_or_default();
    let ran = Command::new(format!("{bin}psql"))
        .args([database, "-v", "ON_ERROR_STOP=1", "-qAtc", sql])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{sql}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).trim().to_owned()
}
