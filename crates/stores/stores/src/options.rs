//! The settings of a store, whatever its adapter, and their translation for each adapter.

use std::path::PathBuf;

use millrace_store_sqlite::SqliteOptions;

/// Settings of a handle on a store. The defaults are meant for production.
///
/// An adapter ignores settings that it has no use for: the in-memory store uses none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// How many ids brought by clients are remembered for dedupe; the oldest are forgotten first. About 24 bytes of
    /// memory each.
    pub dedupe_ids_max: usize,
    /// The longest dedupe window, whatever a batch asks for; the engine refuses topics that ask for more.
    pub dedupe_window_ms_max: u64,
    /// How many read connections are open at once; further readers wait.
    pub readers_max: usize,
    /// Below this many free bytes on the store's disk, programs are told to add nothing more (`DiskUse::low`), so that
    /// acks and deletions still find room.
    pub disk_free_bytes_min: u64,
    /// Settings that only a SQLite store has.
    pub sqlite: SqliteSettings,
    /// Settings that only a shared store has.
    pub shared: SharedSettings,
}

/// The settings of a store that several servers share. `None` = the default of its engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSettings {
    /// The folder for the local copy.
    pub cache: PathBuf,
    /// The address by which clients and other servers reach this process.
    pub advertise: String,
    /// See `JournalSettings::lead_timeout_ms`.
    pub lead_timeout_ms: Option<u64>,
    /// See `JournalSettings::follow_ms`.
    pub follow_ms: Option<u64>,
    /// See `JournalSettings::commit_interval_ms`.
    pub commit_interval_ms: Option<u64>,
    /// How long to wait for an engine that is away at the start; `None` = for ever.
    pub store_wait_ms: Option<u64>,
    /// See `JournalSettings::snapshot_bytes`.
    pub snapshot_bytes: Option<u64>,
}

impl Default for SharedSettings {
    fn default() -> Self {
        SharedSettings {
            cache: crate::shared::default_cache(),
            advertise: String::new(),
            lead_timeout_ms: None,
            follow_ms: None,
            commit_interval_ms: None,
            store_wait_ms: None,
            snapshot_bytes: None,
        }
    }
}

/// The settings that only a SQLite store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteSettings {
    /// The positions of events are moved from memory into a table (*folded*) when this many events, or bytes, are
    /// unfolded.
    pub fold_events: u64,
    pub fold_bytes: u64,
    /// From this size on the write-ahead log is copied into the database beside the writer; at four times this size the
    /// writer waits for the copy.
    pub wal_bytes: u64,
    /// How long to wait for locks of other programs on the file; Millrace's own processes queue instead.
    pub busy_timeout_ms: u64,
    /// The database file may not grow beyond this; reaching it is treated as a full disk. `None` = as far as the disk
    /// allows.
    pub file_bytes_max: Option<u64>,
}

/// The adapter has the defaults, so that each of them is written once.
impl Default for StoreOptions {
    fn default() -> Self {
        let sqlite = SqliteOptions::default();
        StoreOptions {
            dedupe_ids_max: sqlite.dedupe_ids_max,
            dedupe_window_ms_max: sqlite.dedupe_window_ms_max,
            readers_max: sqlite.readers_max,
            disk_free_bytes_min: sqlite.disk_free_bytes_min,
            sqlite: SqliteSettings::default(),
            shared: SharedSettings::default(),
        }
    }
}

impl Default for SqliteSettings {
    fn default() -> Self {
        let SqliteOptions { fold_events, fold_bytes, wal_bytes, busy_timeout_ms, file_bytes_max, .. } =
            SqliteOptions::default();
        SqliteSettings { fold_events, fold_bytes, wal_bytes, busy_timeout_ms, file_bytes_max }
    }
}

impl StoreOptions {
    pub(crate) fn for_sqlite(&self) -> SqliteOptions {
        let StoreOptions {
            dedupe_ids_max,
            dedupe_window_ms_max,
            readers_max,
            disk_free_bytes_min,
            sqlite,
            shared: _,
        } = self;
        let SqliteSettings { fold_events, fold_bytes, wal_bytes, busy_timeout_ms, file_bytes_max } = sqlite;
        SqliteOptions {
            dedupe_ids_max: *dedupe_ids_max,
            dedupe_window_ms_max: *dedupe_window_ms_max,
            readers_max: *readers_max,
            disk_free_bytes_min: *disk_free_bytes_min,
            fold_events: *fold_events,
            fold_bytes: *fold_bytes,
            wal_bytes: *wal_bytes,
            busy_timeout_ms: *busy_timeout_ms,
            file_bytes_max: *file_bytes_max,
            ..SqliteOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_adapter() {
        let translated = format!("{:?}", StoreOptions::default().for_sqlite());
        assert_eq!(translated, format!("{:?}", SqliteOptions::default()));
    }

    #[test]
    fn every_setting_reaches_the_adapter() {
        let options = StoreOptions {
            dedupe_ids_max: 1,
            dedupe_window_ms_max: 2,
            readers_max: 3,
            disk_free_bytes_min: 4,
            sqlite: SqliteSettings {
                fold_events: 5,
                fold_bytes: 6,
                wal_bytes: 7,
                busy_timeout_ms: 8,
                file_bytes_max: Some(9),
            },
            shared: SharedSettings::default(),
        };
        let sqlite = options.for_sqlite();
        assert_eq!((sqlite.dedupe_ids_max, sqlite.dedupe_window_ms_max, sqlite.readers_max), (1, 2, 3));
        assert_eq!((sqlite.disk_free_bytes_min, sqlite.fold_events, sqlite.fold_bytes), (4, 5, 6));
        assert_eq!((sqlite.wal_bytes, sqlite.busy_timeout_ms, sqlite.file_bytes_max), (7, 8, Some(9)));
    }
}
