//! The folder of a journal: where everything is, files that appear whole, and the errors of the disk.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use millrace_store::FailureCause;

use crate::error::JournalError;

pub(super) const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

#[derive(Debug)]
pub(super) struct JournalFolder {
    pub(super) root: PathBuf,
    pub(super) records: PathBuf,
    pub(super) snapshots: PathBuf,
    /// Files that are being written. A crash leaves them behind; `check` removes them.
    pub(super) temp: PathBuf,
    pub(super) manifest: PathBuf,
    pub(super) manifest_lock: PathBuf,
}

impl JournalFolder {
    pub(super) fn new(root: PathBuf) -> JournalFolder {
        JournalFolder {
            records: root.join("journal"),
            snapshots: root.join("snapshot"),
            temp: root.join("temp"),
            manifest: root.join("manifest"),
            manifest_lock: root.join("manifest.lock"),
            root,
        }
    }

    /// Writes a file under a name that nobody else has, and syncs it.
    pub(super) fn write_temp(&self, pieces: &[&[u8]]) -> Result<TempFile, JournalError> {
        // Random, because processes of other machines with the same process id may use the folder.
        let name = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
        let path = self.temp.join(name);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(&path)
            .map_err(failed("make", &path))?;
        let temp = TempFile { path };
        let written = pieces.iter().try_for_each(|piece| file.write_all(piece));
        written.and_then(|()| file.sync_all()).map_err(failed("write", &temp.path))?;
        Ok(temp)
    }

    /// Reads a file; `None` if there is none although its folder is there. A folder that is gone (a disk that is not
    /// mounted any more) must not look like an empty journal.
    pub(super) fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, JournalError> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.check_still_there()?;
                Ok(None)
            }
            Err(error) => Err(failed("read", path)(error)),
        }
    }

    pub(super) fn check_still_there(&self) -> Result<(), JournalError> {
        fs::metadata(&self.records).map(|_| ()).map_err(failed("find", &self.records))
    }
}

/// A file that is removed with this value, unless it has got another name before.
#[derive(Debug)]
pub(super) struct TempFile {
    path: PathBuf,
}

impl TempFile {
    /// Gives the file a further name that must be free. Returns whether it did.
    pub(super) fn link(&self, name: &Path) -> Result<bool, JournalError> {
        let Err(error) = fs::hard_link(&self.path, name) else { return Ok(true) };
        // On a network disk the answer may have been lost, and the answer to the second request be that the name
        // exists. Nobody else makes links of this file, so their number tells.
        match fs::symlink_metadata(&self.path) {
            Ok(found) if found.nlink() > 1 => Ok(true),
            _ if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            // The folder is there and the temporary file is not: another process took it for a leftover.
            Err(gone) if gone.kind() == ErrorKind::NotFound && name.parent().is_some_and(Path::exists) => {
                Err(JournalError::Unknown(cause("link", name, error)))
            }
            _ => Err(failed("link", name)(error)),
        }
    }

    /// Gives the file another name, replacing the file that has it.
    pub(super) fn rename(self, name: &Path) -> io::Result<()> {
        fs::rename(&self.path, name)
    }

    /// Returns when the file was written, by the clock of the disk.
    pub(super) fn modified(&self) -> Result<std::time::SystemTime, JournalError> {
        let found = fs::metadata(&self.path).and_then(|found| found.modified());
        found.map_err(failed("look at", &self.path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // After `rename` there is nothing to remove. In other cases `check` removes the file some day.
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes a folder for its owner only. Returns whether it was missing.
pub(super) fn make(folder: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Syncs a folder: without that, a synced file can still vanish with its name.
pub(super) fn sync(folder: &Path) -> Result<(), JournalError> {
    File::open(folder).and_then(|file| file.sync_all()).map_err(failed("sync", folder))
}

/// Removes a file; a file that is gone already is fine as long as its folder is there.
pub(super) fn remove(file: &Path) -> Result<(), JournalError> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("delete", file)(error)),
        _ => Ok(()),
    }
}

/// Returns the names in a folder that are UTF-8; all names of a journal are.
pub(super) fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

/// Makes the error of a request that the disk failed. Missing files and rights stay missing until somebody does
/// something; a full disk, a failing one and one that is away may get better by themselves, and the request may have
/// been carried out.
pub(super) fn failed<'a>(doing: &'a str, path: &'a Path) -> impl Fn(io::Error) -> JournalError + 'a {
    move |error| match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::InvalidFilename
        | ErrorKind::Unsupported => JournalError::Refused(cause(doing, path, error)),
        _ => JournalError::Unknown(cause(doing, path, error)),
    }
}

fn cause(doing: &str, path: &Path, error: io::Error) -> FailureCause {
    FailureCause::new(format!("cannot {doing} {}: {error}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_may_get_better_and_missing_rights_do_not() {
        let path = Path::new("journal/1");
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::StaleNetworkFileHandle] {
            let error = failed("write", path)(kind.into());
            assert!(matches!(error, JournalError::Unknown(_)), "{error}");
            assert!(error.to_string().contains("cannot write journal/1: "), "{error}");
        }
        for kind in [ErrorKind::PermissionDenied, ErrorKind::NotFound, ErrorKind::ReadOnlyFilesystem] {
            assert!(matches!(failed("write", path)(kind.into()), JournalError::Refused(_)));
        }
    }

    #[test]
    fn a_lost_answer_to_a_link_is_found_by_the_number_of_links() {
        let root = tempfile::tempdir().unwrap();
        let folder = JournalFolder::new(root.path().to_owned());
        for inner in [&folder.records, &folder.temp] {
            make(inner).unwrap();
        }
        let name = folder.records.join("1");
        let (temp, other) = (folder.write_temp(&[b"a"]).unwrap(), folder.write_temp(&[b"b"]).unwrap());
        assert_eq!(temp.link(&name), Ok(true));
        assert_eq!(temp.link(&name), Ok(true), "the same request again");
        assert_eq!(other.link(&name), Ok(false));
        // Somebody took the file for a leftover.
        fs::remove_file(other.path()).unwrap();
        assert!(matches!(other.link(&folder.records.join("2")), Err(JournalError::Unknown(_))));
    }
}
