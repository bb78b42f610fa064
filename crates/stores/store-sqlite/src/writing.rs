//! Commits: batches are resolved, then written in one transaction. Damage met on the way is set aside.

pub(crate) mod commit;
pub(crate) mod copy;
pub(crate) mod damage;
pub(crate) mod progress;
pub(crate) mod quarantine;
pub(crate) mod remove;
pub(crate) mod stage;
pub(crate) mod transaction;
