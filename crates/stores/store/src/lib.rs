//! The store port: one method that writes, a few that read.
//!
//! [`Store::commit`] is the only way to write. A commit takes many batches and makes them durable with one sync, each
//! batch whole or not at all. No crash undoes a confirmed commit.
//!
//! Not in this crate: group commit (the broker collects batches while a sync is under way), decisions (the engines
//! make them), and any particular database (adapters are crates of their own that do not know one another).
//!
//! Start with [`Store`]. Every adapter must pass the suite of the crate `conformance`; [`MemoryStore`] is the simplest
//! that does.

mod error;
mod failure_cause;
mod fold;
mod memory;
mod newest;
mod pace;
mod port;
mod rows;

/// The words of the port.
pub use millrace_model::{KeyRange, Page, ReadLimit, Row};

pub use error::StoreError;
pub use failure_cause::FailureCause;
pub use fold::{
    CommitVia, Copies, CopyBounds, CopyPosition, FoldError, FoldRecord, Foldable, Placement, RecordedChange,
    RecordedEvent, Tip,
};
pub use memory::MemoryStore;
pub use newest::newest_commit;
pub use pace::Pace;
pub use port::{
    Changes, CommitNumber, DiskUse, Maintained, NewsWake, OtherHandles, Retention, Store, StreamBounds,
    StreamRun,
};
pub use rows::{each_row, try_each_row};
