//! Commits: batches are resolved, then written in one transaction. Damage met on the way is set aside.

pub(crate) mod commit;
pub(crate) mod copy;
pub(crate) mod damage;
pub(crate) mod front;
pub(crate) mod plain;
pub(crate) mod progress;
pub(crate) mod quarantine;
pub(crate) mod remove;
pub(crate) mod settle;
pub(crate) mod settler;
pub(crate) mod stage;
pub(crate) mod target;
pub(crate) mod transaction;
pub(crate) mod unsettled;
