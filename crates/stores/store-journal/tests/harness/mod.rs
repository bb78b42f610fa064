//! Handles on a journal in memory, with copies in SQLite.

#![allow(clippy::unwrap_used, dead_code)]

pub(crate) mod clock;
pub(crate) mod machine;
pub(crate) mod wire;

use std::path::Path;
use std::sync::Arc;

use millrace_conformance::shared::FollowingHandle;
use millrace_journal::Journal;
use millrace_store_journal::{JournalSettings, JournalStore, Leadership};
use millrace_store_sqlite::{SqliteCopies, SqliteOptions};

/// Handles take turns, without a lead.
pub(crate) fn free_settings() -> JournalSettings {
    JournalSettings { leadership: Leadership::Free, backoff_ms_max: 1, ..JournalSettings::default() }
}

pub(crate) fn open_copy(
    journal: Arc<dyn Journal>,
    path: &Path,
    options: &SqliteOptions,
    settings: JournalSettings,
) -> JournalStore {
    let copies = Arc::new(SqliteCopies::new(path.to_owned(), options.clone()));
    // Pauses between attempts cost nothing with this clock.
    JournalStore::open_quiet(journal, copies, settings, Arc::new(clock::ManualClock::new())).unwrap()
}

/// Returns the function that opens handles for `shared::alone` and `shared::in_turn`. `journal` is called once for every
/// handle, so that each may have faults of its own.
pub(crate) fn handles(
    options: SqliteOptions,
    journal: impl Fn() -> Arc<dyn Journal>,
) -> impl Fn(&str) -> FollowingHandle<JournalStore> {
    let folder = tempfile::tempdir().unwrap();
    move |copy| {
        let path = folder.path().join(format!("{copy}.db"));
        let store = open_copy(journal(), &path, &options, free_settings());
        FollowingHandle::new(store, JournalStore::follow)
    }
}

pub(crate) fn small() -> SqliteOptions {
    SqliteOptions {
        fold_events: 8,
        loc_events_max: 5,
        commits_kept: 64,
        wal_bytes: 64 << 10,
        readers_max: 1,
        ..SqliteOptions::default()
    }
}
