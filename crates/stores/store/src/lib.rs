//! The store port: one verb that writes, a few that read.
//!
//! [`Store::commit`] is the only way in. It takes many batches at once and makes them durable with one sync, each
//! of them whole or not at all. What it confirms, no crash takes away.
//!
//! What is not here: group commit (the runtime collects batches while a sync is under way), decisions (the engines
//! make them), any particular database (adapters are crates of their own and strangers to one another).
//!
//! Start with [`Store`]. The suite that every adapter passes is the crate `conformance`; [`MemoryStore`] is the simplest
//! that does.

mod error;
mod memory;
mod newest;
mod pace;
mod port;
mod rows;

/// The words of the port.
pub use millrace_model::{KeyRange, Page, ReadLimit, Row};

pub use error::StoreError;
pub use memory::MemoryStore;
pub use newest::newest_commit;
pub use pace::Pace;
pub use port::{Changes, CommitNumber, DiskUse, Maintained, Retention, Run, Store, StreamBounds};
pub use rows::each_row;
