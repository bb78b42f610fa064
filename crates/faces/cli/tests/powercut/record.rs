//! Runs processes under the recorder, and reads the trace of what they did.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::disk::{Disk, Lie};
use crate::image;
use crate::trace::{self, Trace};

/// The size of the blocks in which a difference is recorded.
const BLOCK_BYTES: usize = 512;

/// A recorded folder, and the trace beside it.
pub struct Recorder {
    _place: TempDir,
    library: PathBuf,
    root: PathBuf,
    trace: PathBuf,
}

impl Recorder {
    pub fn new() -> Recorder {
        let place = tempfile::tempdir().expect("a temporary folder");
        // The path as the kernel names it, because the recorder compares paths of open files.
        let here = place.path().canonicalize().expect("a path");
        let (library, root, trace) = (here.join("recorder.so"), here.join("disk"), here.join("trace"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/powercut/recorder.c");
        let built = Command::new("cc")
            .args(["-O1", "-fPIC", "-shared", "-Wall", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .output()
            .expect("a C compiler, as for SQLite");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        fs::create_dir(&root).expect("a folder");
        fs::write(&trace, "").expect("a file");
        Recorder { _place: place, library, root, trace }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the environment variables of a process to be recorded.
    pub fn environment(&self) -> [(&'static str, &Path); 3] {
        [("LD_PRELOAD", &self.library), ("POWERCUT_ROOT", &self.root), ("POWERCUT_TRACE", &self.trace)]
    }

    /// Returns the current length of the trace: everything answered before this call was recorded before it.
    pub fn position(&self) -> u64 {
        fs::metadata(&self.trace).expect("a trace").len()
    }

    pub fn trace(&self) -> Trace {
        Trace::read(&self.trace)
    }

    pub fn disk<'a>(&self, trace: &'a Trace, lie: Lie) -> Disk<'a> {
        Disk::new(trace, self.root.to_str().expect("a UTF-8 path"), lie)
    }

    /// Checks, after the recorded processes have ended normally, that the trace describes exactly what is in the
    /// folder.
    pub fn assert_complete(&self) {
        let trace = self.trace();
        let missing = self.differences(&trace);
        assert!(missing.is_empty(), "the recorder missed changes of {missing:?}");
    }

    /// Completes the trace after the recorded processes were killed: a call may have been executed and not recorded.
    pub fn complete(&self) {
        let trace = Trace::mend(&self.trace);
        self.differences(&trace);
    }

    /// Records that everything the test itself put into the folder, and into the folders of the first level, is
    /// durable.
    pub fn settle(&self) {
        for folder in folders_below(&self.root) {
            trace::append(&self.trace, trace::FOLDER_MADE, 0, 0, &self.full(&folder), &[]);
        }
        self.differences(&self.trace());
        let files = files_below(&self.root).into_iter().map(|(name, (inode, _))| (name, inode));
        let folders = folders_below(&self.root).into_iter().chain([String::new()]).map(|name| (name, 0));
        for ((name, inode), number) in files.chain(folders).zip(1..) {
            for kind in [trace::SYNC_BEGUN, trace::SYNC_ENDED] {
                let full = self.full(&name);
                trace::append(&self.trace, kind, inode, number, full.trim_end_matches('/'), &[]);
            }
        }
    }

    /// Returns the names of files that differ from the trace, and appends the differences to the trace file.
    fn differences(&self, trace: &Trace) -> Vec<String> {
        let mut disk = self.disk(trace, Lie::None);
        trace.records.iter().for_each(|record| disk.apply(record));
        let real = files_below(&self.root);
        let mut different = Vec::new();
        for name in disk.names.keys().filter(|name| !real.contains_key(*name)) {
            different.push(name.clone());
            trace::append(&self.trace, trace::UNLINKED, 0, 0, &self.full(name), &[]);
        }
        for (name, (inode, bytes)) in &real {
            let known = disk.names.get(name).map(|id| image::current(&disk, *id));
            if known.as_ref() == Some(bytes) {
                continue;
            }
            different.push(name.clone());
            self.append_difference(name, *inode, known, bytes);
        }
        different
    }

    fn append_difference(&self, name: &str, inode: u64, known: Option<Vec<u8>>, bytes: &[u8]) {
        let full = self.full(name);
        let mut known = known.unwrap_or_else(|| {
            trace::append(&self.trace, trace::OPENED, inode, 0, &full, &[]);
            Vec::new()
        });
        if known.len() != bytes.len() {
            trace::append(&self.trace, trace::RESIZED, inode, bytes.len() as u64, &full, &[]);
            known.resize(bytes.len(), 0);
        }
        for (n, (old, new)) in known.chunks(BLOCK_BYTES).zip(bytes.chunks(BLOCK_BYTES)).enumerate() {
            if old != new {
                let at = (n * BLOCK_BYTES) as u64;
                trace::append(&self.trace, trace::WRITTEN, inode, at, &full, new);
            }
        }
    }

    fn full(&self, name: &str) -> String {
        self.root.join(name).to_str().expect("a UTF-8 path").to_owned()
    }
}

fn folders_below(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root).expect("a folder").map(|entry| entry.expect("an entry"));
    let folders = entries.filter(|entry| entry.path().is_dir());
    folders.map(|entry| entry.file_name().into_string().expect("a UTF-8 name")).collect()
}

/// Returns inode and bytes of every file of the model, by its name within the folder.
fn files_below(root: &Path) -> BTreeMap<String, (u64, Vec<u8>)> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let metadata = path.metadata().expect("a file");
            let name = path.strip_prefix(root).expect("below the root").to_str().expect("a UTF-8 path");
            if metadata.is_dir() {
                folders.push(path.clone());
            } else if metadata.is_file() && !name.ends_with("-shm") {
                // Not sockets: they hold nothing, and do not survive a cut.
                let bytes = fs::read(&path).expect("a file");
                found.insert(name.to_owned(), (metadata.ino(), bytes));
            }
        }
    }
    found
}
