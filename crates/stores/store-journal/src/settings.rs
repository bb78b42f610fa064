//! The settings of a handle on a shared store.

/// Every limit and pause of a shared store. The defaults are meant for PostgreSQL and MongoDB; `stores` has those of
/// object storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// The address by which other servers and clients reach this server, told to those who ask a follower.
    pub url: String,
    pub leadership: Leadership,
    /// A leader that has placed no record for this long may be replaced. An idle leader places one every third of it.
    pub lead_timeout_ms: u64,
    /// Commits begin at least this long after one another, where each costs money; an idle store commits at once.
    pub commit_interval_ms: u64,
    /// How often a follower looks for new records.
    pub follow_ms: u64,
    /// How long to wait for an engine that cannot be reached at the start; `None` = for ever.
    pub store_wait_ms: Option<u64>,
    /// A snapshot is made when the journal since the last one is larger than this and larger than that snapshot.
    pub snapshot_bytes: u64,
    /// A snapshot is also made after this many records.
    pub snapshot_records: u64,
    /// The size of a part of a snapshot.
    pub part_bytes: usize,
    /// Records before a snapshot are deleted this long after the manifest said so.
    pub trim_grace_ms: u64,
    /// How many of the newest records are never deleted.
    pub records_kept: u64,
    /// How often records and parts that are no longer needed are looked for.
    pub clean_up_ms: u64,
    /// How often the manifest is read again.
    pub manifest_refresh_ms: u64,
    /// How old a reading of the manifest may be for a placing to be believed, where the engine does not compare with
    /// the newest number itself.
    pub manifest_age_ms_max: u64,
    /// How many ids the store has to remember for dedupe, at least. The store remembers as many as the server that asks
    /// for most. `None` = as many as the store does already (tools).
    pub dedupe_ids_max: Option<u64>,
    /// The longest pause between two attempts to reach an engine.
    pub backoff_ms_max: u64,
}

/// Says whether a handle may commit without the lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// Only while this handle leads (servers and sessions).
    Needed,
    /// Always: several handles take turns, each placing compares with the others. Fair only under little load; for
    /// tests and tools.
    Free,
}

impl Default for JournalSettings {
    fn default() -> Self {
        JournalSettings {
            url: String::new(),
            leadership: Leadership::Needed,
            lead_timeout_ms: 5_000,
            commit_interval_ms: 0,
            follow_ms: 50,
            store_wait_ms: None,
            snapshot_bytes: 256 << 20,
            snapshot_records: 1_000_000,
            part_bytes: 8 << 20,
            trim_grace_ms: 24 * 3600 * 1000,
            records_kept: 1_000,
            clean_up_ms: 10 * 60 * 1000,
            manifest_refresh_ms: 60_000,
            manifest_age_ms_max: 3600 * 1000,
            dedupe_ids_max: None,
            backoff_ms_max: 1_000,
        }
    }
}
