//! A library that makes a process's disk misbehave on command, compiled from `faults.c` by the test itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::server::eventually;

pub struct Faults {
    folder: TempDir,
    library: PathBuf,
}

impl Faults {
    /// Without a C compiler the test fails: what it shows can be shown in no other way.
    pub fn new() -> Faults {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let library = folder.path().join("libfaults.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bus/disk/faults.c");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
            .args([&library, Path::new(source)])
            .arg("-ldl")
            .status()
            .expect("a C compiler named cc");
        assert!(compiled.success());
        Faults { folder, library }
    }

    /// What a process must have in its environment.
    pub fn env(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("FAULTS_FOLDER", self.folder.path())]
    }

    pub fn begin(&self, fault: &str) {
        std::fs::write(self.folder.path().join(fault), "").expect("a file");
    }

    pub fn end(&self, fault: &str) {
        std::fs::remove_file(self.folder.path().join(fault)).expect("the fault had begun");
    }

    /// Until a sync of the process hangs.
    #[track_caller]
    pub fn hangs(&self) {
        eventually("a sync hangs", || self.folder.path().join("hanging").exists());
    }
}
