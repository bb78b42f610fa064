//! Topics: their settings, access lists, schemas, and how long their events are kept.

pub(crate) mod access;
pub(crate) mod admin;
pub(crate) mod ages;
pub(crate) mod compaction;
pub(crate) mod letter_removal;
pub(crate) mod retention;
pub(crate) mod schema;
pub(crate) mod schema_change;
pub(crate) mod system;
pub(crate) mod table;
pub(crate) mod topic;
pub(crate) mod totals;
