//! The embedded store: a single SQLite file holds everything, one writer at a time appends to it, readers never wait.
//!
//! All events of all streams lie in one table in order of arrival (by `seq`). Runs say where a stream's events are; new
//! runs are kept in memory and later folded into the table `loc`. `docs/formats/store-sqlite.md` specifies the bytes.
//!
//! Not in this crate: group commit (the broker merges batches before it calls), and any decision about events.
//!
//! Start with [`SqliteStore::open`]. The folders, in the order of the data:
//!
//! - `opening`: checks the file, migrates it, loads the index (`open`); or opens the file for reading only
//!   (`read_only`).
//! - `rows`: the tables (`schema`), the bytes in their rows (`codec`, `row`, `loc`), the small tables (`tables`).
//! - `writing`: a commit is resolved (`commit`, `stage`) and written (`transaction`); `progress` tells what it waits for,
//!   `damage` and `quarantine` set aside events that cannot be read. Commits of a copy are answered in front of the
//!   tables (`front`, `unsettled`) and written to them later (`settle`, `settler`).
//! - `reading`: pages (`read`) and searches (`seek`) over the `index`, on connections of a `pool`.
//! - `upkeep`: what `maintain` does in slices (`fold`, `reclaim`, `purge`), and the write-ahead log (`checkpoint`, with a
//!   thread, `checkpointer`).
//! - `dedupe`: ids that clients brought: recent ones in memory, saved ones, those of deleted events.
//! - `files`: which files belong to a store, who may use them, and what happens when they lose their names.
//! - `locks`: who has the store open, who has the write lock, who serves it.
//! - `copies`: the store as the local copy of a shared one.
//! - `offline`: `backup` and `restore`; `doctor` examines. Both work on the file from outside, without a handle.

mod copies;
mod dedupe;
mod doctor;
mod error;
mod files;
mod locks;
mod offline;
mod opening;
mod options;
mod reading;
mod rows;
mod store;
mod store_core;
mod upkeep;
mod writing;

pub use copies::SqliteCopies;
pub use doctor::{Doctor, Examined};
pub use files::file_error::FileError;
pub use locks::serve_lock::ServeLock;
pub use offline::backup::{BackupError, Copied, Existing, backup};
pub use offline::restore::Restore;
pub use opening::read_only::{ReadOnlyError, find_store, schema_version};
pub use options::SqliteOptions;
pub use rows::schema::SCHEMA_VERSION;
pub use store::SqliteStore;
pub use writing::progress::opening_waits_for;
pub use writing::quarantine::Quarantined;
