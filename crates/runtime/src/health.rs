//! What readiness probes ask about: set by the threads, read by the edges.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Default)]
pub struct Health {
    storage_failed: OnceLock<String>,
    stopping: AtomicBool,
}

impl Health {
    /// Why nothing is written any more, if so. The first reason stays.
    pub fn storage_failed(&self) -> Option<&str> {
        self.storage_failed.get().map(String::as_str)
    }

    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub fn ready(&self) -> bool {
        self.storage_failed().is_none() && !self.stopping()
    }

    pub(crate) fn set_storage_failed(&self, reason: String) {
        let _ = self.storage_failed.set(reason);
    }

    pub(crate) fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}
