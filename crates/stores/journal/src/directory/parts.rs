//! Parts of snapshots: files in the folder `snapshot`, each snapshot in a folder of its own.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use bytes::Bytes;

use super::folder::{self, JournalFolder, failed};
use super::names;
use crate::error::JournalError;
use crate::port::PartName;

/// How often the folder of a snapshot is made again because another process removed it as empty.
const ATTEMPTS_MAX: usize = 10;

struct PartPath {
    folder: PathBuf,
    file: PathBuf,
}

impl PartPath {
    fn new(folder: &JournalFolder, name: &PartName) -> Result<PartPath, JournalError> {
        let Some((snapshot, part)) = names::of_part(name) else {
            let text = format!(
                "{:?} is not the name of a part: digits, lower-case letters and - around one /, at most 100 bytes",
                name.0
            );
            return Err(JournalError::Refused(text.into()));
        };
        let folder = folder.snapshots.join(snapshot);
        Ok(PartPath { file: folder.join(part), folder })
    }
}

pub(super) fn put(folder: &JournalFolder, name: &PartName, bytes: &[u8]) -> Result<(), JournalError> {
    let path = PartPath::new(folder, name)?;
    for _ in 0..ATTEMPTS_MAX {
        let is_new = folder::make(&path.folder).map_err(failed("make", &path.folder))?;
        let temp = folder.write_temp(&[bytes])?;
        match temp.rename(&path.file) {
            Ok(()) => {
                folder::sync(&path.folder)?;
                return if is_new { folder::sync(&folder.snapshots) } else { Ok(()) };
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed("write", &path.file)(error)),
        }
    }
    let text = format!("{} is removed as fast as it is made", path.folder.display());
    Err(JournalError::Unknown(text.into()))
}

pub(super) fn get(folder: &JournalFolder, name: &PartName) -> Result<Option<Bytes>, JournalError> {
    let path = PartPath::new(folder, name)?;
    Ok(folder.read(&path.file)?.map(Bytes::from))
}

pub(super) fn list(folder: &JournalFolder) -> Result<Vec<PartName>, JournalError> {
    let snapshots = folder::names_in(&folder.snapshots).map_err(failed("list", &folder.snapshots))?;
    let mut parts = Vec::new();
    for snapshot in snapshots.iter().filter(|name| names::is_plain(name)) {
        let path = folder.snapshots.join(snapshot);
        match folder::names_in(&path) {
            Ok(names) => {
                let names = names.iter().filter(|name| names::is_plain(name));
                parts.extend(names.map(|name| PartName(format!("{snapshot}/{name}"))));
            }
            // Its last part was deleted meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed("list", &path)(error)),
        }
    }
    Ok(parts)
}

pub(super) fn delete(folder: &JournalFolder, name: &PartName) -> Result<(), JournalError> {
    let path = PartPath::new(folder, name)?;
    folder.check_still_there()?;
    folder::remove(&path.file)?;
    match remove_if_empty(&path) {
        Err(error) => Err(failed("delete", &path.folder)(error)),
        Ok(()) => folder::sync(&folder.snapshots),
    }
}

/// Removes the folder of the snapshot with its last part, and otherwise syncs it.
fn remove_if_empty(path: &PartPath) -> io::Result<()> {
    match fs::remove_dir(&path.folder) {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
            fs::File::open(&path.folder).and_then(|folder| folder.sync_all())
        }
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
