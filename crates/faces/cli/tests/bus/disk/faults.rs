//! A library that makes the disk of a process misbehave on command. The test compiles it from `faults.c`.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::server::eventually;

pub struct Faults {
    folder: TempDir,
    library: PathBuf,
}

impl Faults {
    /// Compiles the library. Without a C compiler the test fails, because nothing else can show this behaviour.
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

    /// Returns the environment variables that the process needs.
    pub fn env(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("FAULTS_FOLDER", self.folder.path())]
    }

    pub fn begin(&self, fault: &str) {
        std::fs::write(self.folder.path().join(fault), "").expect("a file");
    }

    pub fn end(&self, fault: &str) {
        std::fs::remove_file(self.folder.path().join(fault)).expect("the fault had begun");
    }

    /// Waits until a sync of the process hangs.
    #[track_caller]
    pub fn hangs(&self) {
        eventually("a sync hangs", || self.folder.path().join("hanging").exists());
    }
}
