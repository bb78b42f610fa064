//! Locks between handles and processes: who has the store open, who writes, who serves it.

#[cfg(target_os = "linux")]
pub(crate) mod arrivals;
pub(crate) mod file_claim;
pub(crate) mod holder;
pub(crate) mod lock_file;
pub(crate) mod lock_folder;
pub(crate) mod news_listener;
pub(crate) mod news_sockets;
pub(crate) mod news_teller;
pub(crate) mod presence;
pub(crate) mod serve_lock;
