//! The settings of a handle on a store.

/// Settings of a handle. The defaults are meant for production; tests use small numbers so that every limit is reached.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// How many ids brought by clients are remembered for dedupe; the oldest are forgotten first. About 24 bytes of
    /// memory each.
    pub dedupe_ids_max: usize,
    /// The longest dedupe window, whatever a batch asks for; the engine refuses topics that ask for more.
    pub dedupe_window_ms_max: u64,
    /// The log is folded into `loc` when this many events, or bytes, are unfolded.
    pub fold_events: u64,
    pub fold_bytes: u64,
    /// The largest row of `loc`, in events. Also how precisely sizes are known without reading events.
    pub loc_events_max: u64,
    /// How many folded commits are kept for watchers.
    pub commits_kept: u64,
    /// From this size on the WAL is copied into the database beside the writer; at four times this size the writer
    /// waits for the copy.
    pub wal_bytes: u64,
    /// How many read connections are open at once; further readers wait.
    pub readers_max: usize,
    /// How long to wait for locks of other programs on the file; Millrace's own processes queue in the lock folder
    /// instead.
    pub busy_timeout_ms: u64,
    /// The database file may not grow beyond this; reaching it is treated as a full disk. `None` = as far as the disk
    /// allows.
    pub file_bytes_max: Option<u64>,
    /// Below this many free bytes on the store's file system, programs are told to add nothing more (`DiskUse::low`),
    /// so that acks and deletions still find room.
    pub disk_free_bytes_min: u64,
    /// Of commits that a journal made durable: how many events, and how many bytes of events and rows, may wait until
    /// they are written to the tables. A commit that finds more waits for that.
    pub unsettled_events_max: usize,
    pub unsettled_bytes_max: usize,
    /// How long such a commit waits at most if nobody reads what it changed.
    pub settle_ms: u64,
    /// The store is the copy of a journal: damage must decide nothing, so a commit that meets any fails. The copy is then
    /// made anew.
    pub is_copy: bool,
}

/// The longest window that a topic may ask for, so that no request is silently shortened. `dedupe_ids_max` limits its
/// cost.
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
            unsettled_events_max: 8192,
            unsettled_bytes_max: 8 << 20,
            settle_ms: 50,
            is_copy: false,
        }
    }
}
