//! Files and folders that only their owner can use, from the moment they exist and whatever the umask is. A user who
//! can open a lock file, even only to read it, can lock it and so stop every commit.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::files::file_error::FileError;
use crate::files::folder;
use crate::locks::lock_folder;
use crate::offline::backup::COMPANIONS;

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
/// The rights of group and others.
pub(crate) const OTHERS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;

/// Returns options that open a file for writing; a file that they create is private.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).truncate(false).mode(FILE_MODE);
    options
}

/// Sets the mode explicitly: the umask may take rights from the owner, and older versions left files with other modes.
pub(crate) fn make_private(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(FILE_MODE))
}

pub(crate) fn create_folders(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)
}

/// Makes an empty file for a new store, because SQLite would give it the umask's mode; the log and its index get the
/// mode of the file. Does not open an existing file, since closing it would drop this process's locks on it. Only for a
/// store that is missing or empty: a store with content keeps its mode.
pub(crate) fn create_store(path: &Path) -> Result<(), FileError> {
    match options().create_new(true).open(path) {
        Ok(file) => {
            let made = make_private(&file).and_then(|()| folder::sync(folder::parent_of(path)));
            made.map_err(FileError::io(path))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Neither opens the file nor follows a link that somebody may have put there in between.
            let found = fs::symlink_metadata(path).map_err(FileError::io(path))?;
            check_owner(path, &found, user())?;
            if found.is_file() && found.mode() & OTHERS != 0 {
                fs::set_permissions(path, Permissions::from_mode(FILE_MODE)).map_err(FileError::io(path))?;
            }
            Ok(())
        }
        Err(error) => Err(FileError::io(path)(error)),
    }
}

/// Refuses a store that another user owns, or that has a log of another user beside it: that user could read and change
/// everything that is written.
pub(crate) fn refuse_foreign(database: &Path) -> Result<(), FileError> {
    let files = COMPANIONS.iter().map(|companion| lock_folder::beside(database, companion));
    for path in std::iter::once(database.to_owned()).chain(files) {
        match fs::symlink_metadata(&path) {
            Ok(found) => check_owner(&path, &found, user())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(FileError::io(&path)(error)),
        }
    }
    Ok(())
}

fn check_owner(path: &Path, found: &Metadata, user: u32) -> Result<(), FileError> {
    let owner = found.uid();
    if owner == user {
        return Ok(());
    }
    Err(FileError::ForeignStore { path: path.to_owned(), owner, user })
}

/// Returns the lock folder of a store, and makes it if it does not exist. Older versions made it readable for
/// everybody; this repairs the mode.
pub(crate) fn lock_folder(database: &Path) -> Result<PathBuf, FileError> {
    let folder = lock_folder::folder(database);
    let io = |error| FileError::io(&folder)(error);
    match DirBuilder::new().mode(FOLDER_MODE).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(&folder).map_err(io)?;
    check_lock_folder(&folder, &found, user())?;
    if found.mode() & OTHERS != 0 {
        fs::set_permissions(&folder, Permissions::from_mode(FOLDER_MODE)).map_err(io)?;
    }
    Ok(folder)
}

/// Returns the user as which this process creates files.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn check_lock_folder(folder: &Path, found: &Metadata, user: u32) -> Result<(), FileError> {
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    let folder = folder.to_owned();
    if !found.is_dir() {
        Err(FileError::NoLockFolder(folder))
    } else if owner != user {
        Err(FileError::ForeignLocks { folder, owner, user })
    } else if mode & OTHERS_WRITE != 0 {
        Err(FileError::SharedLocks { folder, mode })
    } else {
        Ok(())
    }
}

/// Returns the mode of a file that group or others can use.
pub(crate) fn open_to_others(path: &Path) -> Option<u32> {
    let mode = fs::metadata(path).ok()?.mode() & 0o777;
    (mode & OTHERS != 0).then_some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_readable_lock_folder_is_closed_and_a_writable_one_refused() {
        let root = tempfile::tempdir().unwrap();
        let database = root.path().join("store.db");
        let folder = lock_folder(&database).unwrap();
        assert_eq!(mode(&folder), 0o700);
        let set = |mode| fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
        set(0o755);
        lock_folder(&database).unwrap();
        assert_eq!(mode(&folder), 0o700);
        for open in [0o770, 0o720, 0o777, 0o702] {
            set(open);
            let refused = lock_folder(&database).unwrap_err().to_string();
            assert!(refused.contains("chmod 700") && refused.contains(&format!("{open:04o}")), "{refused}");
        }
    }

    #[test]
    fn another_users_lock_folder_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let found = fs::symlink_metadata(root.path()).unwrap();
        check_lock_folder(root.path(), &found, found.uid()).unwrap();
        let refused = check_lock_folder(root.path(), &found, found.uid() + 1).unwrap_err().to_string();
        assert!(refused.contains(&format!("belongs to user {}", found.uid())), "{refused}");
    }

    #[test]
    fn a_lock_folder_that_is_a_link_or_a_file_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let database = root.path().join("store.db");
        std::os::unix::fs::symlink(root.path(), lock_folder::folder(&database)).unwrap();
        assert!(matches!(lock_folder(&database), Err(FileError::NoLockFolder(_))));
        fs::remove_file(lock_folder::folder(&database)).unwrap();
        fs::write(lock_folder::folder(&database), "").unwrap();
        assert!(matches!(lock_folder(&database), Err(FileError::NoLockFolder(_))));
    }

    #[test]
    fn an_empty_store_that_is_there_is_closed_to_others() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("store.db");
        create_store(&path).unwrap();
        assert_eq!((mode(&path), open_to_others(&path)), (0o600, None));
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert_eq!(open_to_others(&path), Some(0o666));
        create_store(&path).unwrap();
        assert_eq!((mode(&path), open_to_others(&path)), (0o600, None));
    }

    #[test]
    fn another_users_store_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("store.db");
        refuse_foreign(&path).unwrap();
        fs::write(&path, "").unwrap();
        refuse_foreign(&path).unwrap();
        let found = fs::symlink_metadata(&path).unwrap();
        let refused = check_owner(&path, &found, found.uid() + 1).unwrap_err().to_string();
        assert!(refused.contains(&format!("belongs to user {}", found.uid())), "{refused}");
    }
}
