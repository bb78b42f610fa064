//! A folder with guests, and the command that runs them.

use std::path::{Path, PathBuf};

use crate::run::{Ran, run_in};

pub struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    /// With the guest `g.wat`.
    pub fn with_module(text: &str) -> Stage {
        let stage = Stage { folder: tempfile::tempdir().unwrap() };
        std::fs::write(stage.path("g.wat"), text).unwrap();
        stage
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `millrace guest g.wat` with these flags, in the folder.
    pub fn run(&self, flags: &[&str]) -> Ran {
        self.run_with_env(&[], flags)
    }

    pub fn run_with_env(&self, env: &[(&str, &str)], flags: &[&str]) -> Ran {
        run_in(self.folder.path(), env, &[&["guest", "g.wat"], flags].concat())
    }
}
