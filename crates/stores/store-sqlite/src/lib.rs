//! The embedded store: a single SQLite file holds everything, one writer at a time appends to it, readers never wait.
//!
//! All events of all streams lie in one table in order of arrival (by `seq`). Runs say where a stream's events are; new
//! runs are kept in memory and later folded into the table `loc`. `docs/formats/store-sqlite.md` specifies the bytes.
//!
//! Not in this crate: group commit (the broker merges batches before it calls), and any decision about events.
//!
//! Start with [`SqliteStore::open`]. A commit goes through `commit` (resolve) and `write` (transaction, publication); a
//! read through `read` over `index` and `loc`; upkeep is `fold`, `reclaim`, `checkpoint` (with a thread,
//! `checkpointer`). `backup`, `restore` and `doctor` work on the file from outside, without a handle.

mod backup;
mod checkpoint;
mod checkpointer;
mod codec;
mod commit;
mod damage;
mod dedupe;
mod dedupe_load;
mod disk_use;
mod doctor;
mod error;
mod file_claim;
mod file_error;
mod fold;
mod folder;
mod hash;
mod holder;
mod index;
mod leftovers;
mod load;
mod loc;
mod locks;
mod look;
mod maintain;
mod names;
mod open;
mod options;
mod pool;
mod presence;
mod private;
mod progress;
mod purge;
mod quarantine;
mod read;
mod real_path;
mod reclaim;
mod remove;
mod restore;
mod retire;
mod row;
mod schema;
mod seek;
mod serve_lock;
mod stage;
mod store;
mod tables;
mod tombstones;
mod write;

pub use backup::{BackupError, Copied, Existing, backup};
pub use doctor::{Doctor, Examined};
pub use file_error::FileError;
pub use look::{LookError, find_store, schema_version};
pub use options::SqliteOptions;
pub use progress::opening_waits_for;
pub use quarantine::Quarantined;
pub use restore::Restore;
pub use schema::SCHEMA_VERSION;
pub use serve_lock::ServeLock;
pub use store::SqliteStore;
