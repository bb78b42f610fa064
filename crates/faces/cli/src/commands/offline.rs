//! Shared by the commands that work on the store file itself: they ask no server and never create a store.

use std::path::{Path, PathBuf};

use millrace_bus::Inspection;
use millrace_model::{Findings, Space};
use millrace_store_sqlite::{BackupError, Doctor, Examined, LookError};
use millrace_stores::StoreUrl;

use crate::failure::Failure;
use crate::settings::Config;

/// The tables in the order in which [`Inspection`] needs them.
const TABLES: [Space; 5] = [Space::Topics, Space::Groups, Space::Cursors, Space::Attempts, Space::Due];

/// Returns the file of the store that the settings name.
pub(super) fn store_file(config: &Config) -> Result<PathBuf, Failure> {
    match config.store.parse() {
        Ok(StoreUrl::Sqlite(path)) => Ok(path),
        Ok(StoreUrl::Memory) => Err(Failure::Unreachable(
            "store is \"memory:\": it lives in its server only, there is no file".into(),
        )),
        Err(error) => Err(Failure::Usage(format!("store is {error}"))),
    }
}

/// Runs all checks: the file by the rules of the store, its small tables by the rules of the bus.
pub(super) fn examine(path: &Path) -> Result<Examined, Failure> {
    let doctor = Doctor::open(path)?;
    let mut examined = doctor.examine();
    if examined.schema_version.is_none() {
        return Ok(examined);
    }
    let streams = examined.streams.iter().map(|bounds| (bounds.stream.clone(), bounds.next));
    let mut inspection = Inspection::new(streams);
    let mut unreadable = Findings::default();
    for space in TABLES {
        doctor.each_row(space, &mut unreadable, |key, value| inspection.row(space, key, value));
    }
    for space in [Space::DueIds, Space::Kv] {
        doctor.each_row(space, &mut unreadable, |_, _| {});
    }
    examined.findings.append(unreadable);
    examined.findings.append(inspection.finish());
    Ok(examined)
}

impl From<LookError> for Failure {
    fn from(error: LookError) -> Failure {
        Failure::Unreachable(error.to_string())
    }
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Failure {
        match error {
            BackupError::Look(error) => error.into(),
            error => Failure::Failed(error.to_string()),
        }
    }
}
