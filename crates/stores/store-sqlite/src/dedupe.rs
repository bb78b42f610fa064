//! Dedupe: the ids that clients brought, in memory, across restarts, and of deleted events.

pub(crate) mod hash;
pub(crate) mod recent_ids;
pub(crate) mod saved_ids;
pub(crate) mod tombstones;
