//! The journal port: what a shared engine (PostgreSQL, object storage, MongoDB) must offer so that several servers can
//! use it as their store.
//!
//! A journal is a sequence of numbered records. Record N is placed by one atomic operation that succeeds only if nobody
//! has placed N before. Every server folds the records, in order, into a copy of its own (the crate `store-journal`);
//! an engine never looks into a record.
//!
//! Not in this crate: what a record holds, who may place one, and any engine outside this process.
//!
//! Start with [`Journal`]. [`MemoryJournal`] is the simplest one; [`DirectoryJournal`] needs nothing but a disk.

mod directory;
mod error;
mod memory;
mod port;

pub use directory::DirectoryJournal;
pub use error::JournalError;
pub use memory::MemoryJournal;
/// The word of the store that both ports share.
pub use millrace_store::Tip;
pub use port::{
    Fitness, HeadGuard, Journal, JournalReadLimit, ManifestRead, ManifestVersion, OutboxId, OutboxRefusal,
    OutboxRow, PartName, Placed, Placing,
};
