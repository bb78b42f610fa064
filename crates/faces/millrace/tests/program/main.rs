//! The life of a whole program: it is stopped by signals, its sessions trim the store, its types change.
#![allow(unreachable_pub, clippy::unwrap_used, reason = "a test may panic")]

mod hanging;
mod migrate;
mod replay;
mod retention;
mod signals;

use std::sync::Arc;

use millrace::Event;
use millrace_store::Store;
use millrace_stores::StoreOptions;
use serde::{Deserialize, Serialize};

#[derive(Event, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ping {
    pub n: u64,
}

/// A store on disk.
#[derive(Debug)]
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn empty() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn url(&self) -> String {
        format!("sqlite:///{}", self.0.path().join("app.db").display())
    }

    /// Opens the store beside the sessions, as another process would.
    pub fn store(&self) -> Arc<dyn Store> {
        let url = self.url().parse().unwrap();
        millrace_stores::open_shared(&url, &StoreOptions::default()).unwrap().store
    }
}
