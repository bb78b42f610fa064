//! The life of a whole program: it is stopped by signals, its sessions trim the store, its types change.
#![allow(unreachable_pub, clippy::unwrap_used, reason = "a test may panic")]

mod hanging;
mod migrate;
mod replay;
mod retention;
mod signals;

use std::path::PathBuf;

use millrace::Event;
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

    pub fn file(&self) -> PathBuf {
        self.0.path().join("app.db")
    }

    pub fn url(&self) -> String {
        format!("sqlite:///{}", self.file().display())
    }
}
