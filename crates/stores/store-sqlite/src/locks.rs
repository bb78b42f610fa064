//! Locks between handles and processes: who has the store open, who writes, who serves it.

pub(crate) mod file_claim;
pub(crate) mod holder;
pub(crate) mod lock_file;
pub(crate) mod lock_folder;
pub(crate) mod presence;
pub(crate) mod serve_lock;
