//! Upkeep: slices of housekeeping, and the write-ahead log.

pub(crate) mod checkpoint;
pub(crate) mod checkpointer;
pub(crate) mod disk_use;
pub(crate) mod fold;
pub(crate) mod maintain;
pub(crate) mod purge;
pub(crate) mod reclaim;
