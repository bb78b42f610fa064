//! The folder that `file/aio` is granted: one for all inputs, because making one takes longer than most scripts.

use std::cell::RefCell;
use std::path::Path;
use std::{fs, io};

use tempfile::TempDir;

thread_local! {
    static FOLDER: RefCell<Option<TempDir>> = const { RefCell::new(None) };
}

/// Runs a script with an empty folder. `run` returns whether the script may have put anything into it.
pub(super) fn with_empty_folder(run: impl FnOnce(&Path) -> bool) {
    FOLDER.with_borrow_mut(|folder| {
        let is_used = run(folder.get_or_insert_with(make).path());
        // Scripts choose the modes of folders, and some modes keep their owner from emptying them.
        if is_used && folder.as_ref().is_some_and(|folder| empty(folder.path()).is_err()) {
            *folder = None;
        }
    });
}

fn make() -> TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

fn empty(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}
