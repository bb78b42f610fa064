//! The store port: one verb that writes, a few that read.
//!
//! [`Store::commit`] is the only way in. It takes many batches at once and makes them durable with one sync, each
//! of them whole or not at all. What it confirms, no crash takes away.
//!
//! What is not here: group commit (the runtime collects batches while a sync is under way), decisions (the engines
//! make them), any particular database (adapters are crates of their own and strangers to one another).
//!
//! Start with [`Store`]. [`conformance`] is what every adapter must pass; [`MemoryStore`] is the simplest that does.

pub mod conformance;
mod error;
mod memory;
mod newest;
mod pace;
mod port;
pub mod resolve;
mod rows;

pub use error::StoreError;
pub use memory::MemoryStore;
pub use newest::newest_commit;
pub use pace::Pace;
pub use port::{
    Changes, CommitNumber, DiskUse, KeyRange, Maintained, Page, ReadLimit, Retention, Row, Run, Store,
    StreamBounds,
};
pub use rows::each_row;
