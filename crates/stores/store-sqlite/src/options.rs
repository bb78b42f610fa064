//! What an opener may choose.

/// Settings of one handle. The defaults are meant for production; tests make the numbers small to see the seams.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// Brought ids remembered for dedupe; the oldest are forgotten first. About 24 bytes of memory each.
    pub dedupe_ids_max: usize,
    /// No batch dedupes further back than this, whatever it asks for; the engine refuses topics that ask for more.
    pub dedupe_window_ms_max: u64,
    /// The log is folded into `loc` when this many events, or bytes, wait for it.
    pub fold_events: u64,
    pub fold_bytes: u64,
    /// Largest row of `loc`, in events: also how finely sizes are known without looking at events.
    pub loc_events_max: u64,
    /// Folded commits kept for watchers.
    pub commits_kept: u64,
    /// From here on the WAL is copied into the database, beside the writer; at four times this the writer waits for it.
    pub wal_bytes: u64,
    /// Read connections open at once; further readers wait.
    pub readers_max: usize,
    /// How long strangers' locks on the file are waited for; Millrace's own processes queue elsewhere.
    pub busy_timeout_ms: u64,
    /// The database file grows no further than this; reaching it is a full disk. `None` = as far as the disk.
    pub file_bytes_max: Option<u64>,
    /// Below this many free bytes on the store's file system, programs are told to add nothing more
    /// (`DiskUse::low`), so that acks and deletions still find room.
    pub disk_free_bytes_min: u64,
}

/// As far back as a topic may ask, so that no wish is cut in silence. What it costs is bounded by `dedupe_ids_max`.
const DEDUPE_WINDOW_MS_MAX: u64 = 30 * 24 * 3600 * 1000;

impl Default for SqliteOptions {
    fn default() -> Self {
        SqliteOptions {
            dedupe_ids_max: 1_000_000,
            dedupe_window_ms_max: DEDUPE_WINDOW_MS_MAX,
            fold_events: 65_536,
            fold_bytes: 64 << 20,
            loc_events_max: 4096,
            commits_kept: 4096,
            wal_bytes: 8 << 20,
            readers_max: 8,
            busy_timeout_ms: 30_000,
            file_bytes_max: None,
            disk_free_bytes_min: 64 << 20,
        }
    }
}
