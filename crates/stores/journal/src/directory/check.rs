//! Makes the folders, tries whether the disk keeps the promises of a journal, and removes what a crash left behind.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::folder::{self, JournalFolder, failed};
use crate::error::JournalError;
use crate::port::{Fitness, HeadGuard};

/// A temporary file of this age was left behind by a crash. Should its writer live after all, its next step fails and
/// it tries again.
const LEFTOVER_AGE: Duration = Duration::from_secs(60 * 60);
const OTHERS: u32 = 0o077;

pub(super) fn check(folder: &JournalFolder) -> Result<Fitness, JournalError> {
    make_folders(folder)?;
    try_links(folder)?;
    let mut remarks = Vec::new();
    match remove_leftovers(folder)? {
        0 => {}
        count => remarks.push(format!("{count} files that were never finished have been removed")),
    }
    let mode = fs::metadata(&folder.root).map_err(failed("look at", &folder.root))?.mode();
    if mode & OTHERS != 0 {
        let path = folder.root.display();
        remarks.push(format!("other users may enter {path}: if they should not, run chmod 700 {path}"));
    }
    let engine = format!("folder {}", folder.root.display());
    Ok(Fitness { engine, is_replicated: false, head_guard: HeadGuard::Manifest, remarks })
}

fn make_folders(folder: &JournalFolder) -> Result<(), JournalError> {
    // Not the folders above: a missing one probably means that a disk is not mounted.
    let is_new = folder::make(&folder.root).map_err(failed("make", &folder.root))?;
    for inner in [&folder.records, &folder.snapshots, &folder.temp] {
        folder::make(inner).map_err(failed("make", inner))?;
    }
    folder::sync(&folder.root)?;
    match folder.root.parent().filter(|parent| is_new && !parent.as_os_str().is_empty()) {
        Some(parent) => folder::sync(parent),
        None => Ok(()),
    }
}

/// Links a file to a name that is free, and a second one to the same name.
fn try_links(folder: &JournalFolder) -> Result<(), JournalError> {
    let (first, second) = (folder.write_temp(&[b"first"])?, folder.write_temp(&[b"second"])?);
    let name = first.path().with_extension("link");
    let outcome = match fs::hard_link(first.path(), &name) {
        Ok(()) => second.link(&name).map(|replaced| !replaced),
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied) => {
            Ok(false)
        }
        Err(error) => return Err(failed("link", &name)(error)),
    };
    folder::remove(&name)?;
    match outcome? {
        true => Ok(()),
        false => Err(JournalError::Unfit(format!(
            "{} is on a disk without hard links, by which records are placed: use a file system of Linux, or NFS",
            folder.root.display()
        ))),
    }
}

/// Removes old temporary files and returns how many. Ages are measured by the clock of the disk, which all machines
/// share.
fn remove_leftovers(folder: &JournalFolder) -> Result<usize, JournalError> {
    let now = folder.write_temp(&[])?.modified()?;
    let names = folder::names_in(&folder.temp).map_err(failed("list", &folder.temp))?;
    let mut removed = 0;
    for path in names.iter().map(|name| folder.temp.join(name)) {
        // A file that is gone meanwhile was not a leftover.
        let Ok(modified) = fs::symlink_metadata(&path).and_then(|found| found.modified()) else { continue };
        if now.duration_since(modified).is_ok_and(|age| LEFTOVER_AGE < age) {
            folder::remove(&path)?;
            removed += 1;
        }
    }
    Ok(removed)
}
