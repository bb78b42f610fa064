//! Fresh shared stores for sessions, with folders for their copies.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use millrace::{Session, SessionBuilder, SharedSettings};
use millrace_conformance::engines::TestEngine;
use millrace_stores::{SharedUrl, StoreUrl};
use tempfile::TempDir;

/// Short, so that followers need not be waited for; a leader beats every third of it.
pub(crate) const LEAD_TIMEOUT_MS: u64 = 1_500;

pub(crate) struct LibraryStore {
    pub(crate) url: String,
    folder: TempDir,
}

impl LibraryStore {
    pub(crate) fn in_a_folder() -> Option<LibraryStore> {
        let folder = tempfile::tempdir().unwrap();
        Some(LibraryStore { url: format!("dir:///{}", folder.path().join("store").display()), folder })
    }

    /// Returns `None`, and says so, if the engine is not there.
    pub(crate) fn on(engine: TestEngine) -> Option<LibraryStore> {
        let url = engine.fresh_store()?.url();
        Some(LibraryStore { url, folder: tempfile::tempdir().unwrap() })
    }

    /// Returns the settings of a machine with this name: it has a cache of its own.
    pub(crate) fn machine(&self, name: &str) -> SharedSettings {
        SharedSettings {
            cache: self.folder.path().join(name),
            advertise: format!("http://{name}:7070"),
            lead_timeout_ms: Some(LEAD_TIMEOUT_MS),
            follow_ms: Some(20),
            ..SharedSettings::default()
        }
    }

    pub(crate) fn session_at(&self, machine: &str) -> SessionBuilder {
        Session::builder(&self.url).shared(self.machine(machine))
    }

    pub(crate) fn shared_url(&self) -> SharedUrl {
        match self.url.parse() {
            Ok(StoreUrl::Shared(url)) => url,
            other => panic!("{other:?} is no shared store"),
        }
    }
}

/// Moves this process into a folder of the build, because a session without settings keeps its copy in the working
/// folder. No other test of this program looks at the working folder.
pub(crate) fn enter_work_folder() {
    static ENTERED: OnceLock<PathBuf> = OnceLock::new();
    ENTERED.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("library-on-engines");
        // Copies of an earlier run.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::env::set_current_dir(&folder).unwrap();
        folder
    });
}
