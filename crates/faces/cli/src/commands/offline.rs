//! Shared by the commands that work on the store itself: they ask no server and never create a store.

use millrace_bus::Inspection;
use millrace_model::{Findings, Space};
use millrace_stores::{Doctor, Examined, OfflineError, SharedSettings, StoreOptions, StoreUrl};

use crate::failure::Failure;
use crate::settings::Config;

/// The tables in the order in which [`Inspection`] needs them.
const TABLES: [Space; 5] = [Space::Topics, Space::Groups, Space::Cursors, Space::Attempts, Space::Due];

/// Returns the store that the settings name.
pub(super) fn store_url(config: &Config) -> Result<StoreUrl, Failure> {
    config.store.parse().map_err(|error| Failure::Usage(format!("store is {error}")))
}

/// Returns the options of a store that a command opens.
pub(super) fn store_options(config: &Config) -> StoreOptions {
    let shared = SharedSettings { cache: config.cluster.cache.clone().into(), ..SharedSettings::default() };
    StoreOptions { shared, ..config.store_options.clone() }
}

/// Runs all checks: the file by the rules of the store, its small tables by the rules of the bus.
pub(super) fn examine(doctor: &Doctor) -> Examined {
    let mut examined = doctor.examine();
    if examined.schema_version.is_none() {
        return examined;
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
    examined
}

impl From<OfflineError> for Failure {
    fn from(error: OfflineError) -> Failure {
        match error {
            OfflineError::NoFile(_) | OfflineError::IsShared(_) | OfflineError::Unreachable(_) => {
                Failure::Unreachable(error.to_string())
            }
            OfflineError::Failed(_) => Failure::Failed(error.to_string()),
        }
    }
}
