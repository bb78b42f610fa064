//! Which file a path means. Locks, log and copies lie beside the file's own name, whatever name it was opened by:
//! otherwise two processes that use two names would each have their own locks on the same file.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::files::file_error::FileError;
use crate::files::folder;
use crate::locks::file_claim::FileId;
use crate::locks::lock_folder;
use crate::opening::open::is_missing_or_empty;

/// How many links are followed; as many as Linux follows.
const LINKS_MAX: usize = 40;

/// Returns the real path of the store file at `path`. Refuses a file with several hard links: the name beside which its
/// log lies cannot be known.
pub(crate) fn of_store(path: &Path) -> Result<PathBuf, FileError> {
    let real = of(path)?;
    refuse_linked(&real)?;
    Ok(real)
}

/// Refuses a file with several hard links, and says which of its names to keep.
pub(crate) fn refuse_linked(path: &Path) -> Result<(), FileError> {
    match names(path)? {
        Some(names) if names > 1 => {
            let keep = which_to_keep(path, names);
            Err(FileError::Linked { path: path.to_owned(), names, keep })
        }
        _ => Ok(()),
    }
}

/// Says what to do about several names. The log lies beside one of them, and removing that name would part the store
/// from what was written last. Does not search other folders for names.
fn which_to_keep(path: &Path, names: u64) -> String {
    let found = names_beside(path);
    let with_log: Vec<&PathBuf> =
        found.iter().filter(|name| !is_missing_or_empty(&lock_folder::beside(name, "-wal"))).collect();
    let inode = fs::metadata(path).map_or(0, |found| found.ino());
    match with_log[..] {
        [keep] => format!(
            "keep {}: its log {}-wal holds what was written last. Stop every process that has the store open, then remove \
             the other names",
            keep.display(),
            keep.display()
        ),
        [] if found.len() as u64 == names => {
            "none of them has a log that holds anything, so keep whichever you like and remove the other names".to_owned()
        }
        [] => format!(
            "the others are in other folders: `find / -inum {inode}` names them. Keep the one that has a -wal beside it, which \
             holds what was written last, and remove the other names"
        ),
        [one, other, ..] => format!(
            "remove none of them: {} and {} both have a -wal beside them that holds events. Copy the file with each log to a \
             folder of its own and look at the copies with `millrace doctor`",
            one.display(),
            other.display()
        ),
    }
}

/// Returns the names that the file has in this folder.
fn names_beside(path: &Path) -> Vec<PathBuf> {
    let Ok(id) = fs::metadata(path).map(|found| FileId::of(&found)) else { return Vec::new() };
    let Ok(entries) = fs::read_dir(folder::parent_of(path)) else { return Vec::new() };
    let is_same = |name: &PathBuf| {
        fs::symlink_metadata(name).is_ok_and(|found| found.is_file() && FileId::of(&found) == id)
    };
    let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_same).collect();
    names.sort();
    names
}

/// Returns how many names a file has. `None` for a folder and for a missing file.
pub(crate) fn names(path: &Path) -> Result<Option<u64>, FileError> {
    match fs::metadata(path) {
        Ok(found) => Ok(found.is_file().then(|| found.nlink())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::io(path)(error)),
    }
}

/// Returns the absolute path without links, also if the file or its folders do not exist yet. `fs::canonicalize` cannot
/// do that: a link to a missing store means the link's target, not the link.
pub(crate) fn of(path: &Path) -> Result<PathBuf, FileError> {
    walk(path).map_err(FileError::io(path))
}

fn walk(path: &Path) -> io::Result<PathBuf> {
    let mut left = std::path::absolute(path)?;
    let mut real = PathBuf::new();
    let mut links = 0;
    loop {
        let mut components = left.components();
        let Some(component) = components.next() else { return Ok(real) };
        match component {
            Component::Normal(name) => {
                let next = real.join(name);
                match fs::read_link(&next) {
                    Ok(target) => {
                        links += 1;
                        if links > LINKS_MAX {
                            return Err(io::Error::other("too many symbolic links, or links in a circle"));
                        }
                        // An absolute target begins with the root, which starts `real` over.
                        left = target.join(components.as_path());
                        continue;
                    }
                    // No link, or no such file: the opener will make the rest of the path, or refuse it.
                    Err(error)
                        if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) =>
                    {
                        real = next;
                    }
                    Err(error) => return Err(error),
                }
            }
            Component::ParentDir => drop(real.pop()),
            Component::RootDir => real = PathBuf::from("/"),
            Component::CurDir | Component::Prefix(_) => {}
        }
        left = components.as_path().to_owned();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_name_leads_to_the_file() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        fs::create_dir_all(at("real/deep")).unwrap();
        fs::write(at("real/store.db"), "").unwrap();
        symlink("real", at("folder")).unwrap();
        symlink(at("folder/store.db"), at("absolute.db")).unwrap();
        symlink("absolute.db", at("chain.db")).unwrap();
        symlink("real/new.db", at("dangling.db")).unwrap();
        symlink("not-yet/new.db", at("dangling-folder.db")).unwrap();
        symlink("circle.db", at("circle.db")).unwrap();
        for (name, real) in [
            ("real/store.db", "real/store.db"),
            ("folder/store.db", "real/store.db"),
            ("real/deep/../store.db", "real/store.db"),
            ("folder/deep/.././store.db", "real/store.db"),
            ("absolute.db", "real/store.db"),
            ("chain.db", "real/store.db"),
            ("dangling.db", "real/new.db"),
            ("dangling-folder.db", "not-yet/new.db"),
            ("folder/a/b/../new.db", "real/a/new.db"),
        ] {
            assert_eq!(of_store(&at(name)).unwrap(), at(real), "{name}");
        }
        assert!(of(&at("circle.db")).unwrap_err().to_string().contains("circle"));
        assert!(of(&at("real/store.db/below")).is_err(), "a file is no folder");
        assert_eq!(of(Path::new("bare.db")).unwrap(), std::env::current_dir().unwrap().join("bare.db"));
    }

    #[test]
    fn several_hard_links_are_refused_under_each_name() {
        let root = tempfile::tempdir().unwrap();
        let (one, two) = (root.path().join("one.db"), root.path().join("two.db"));
        fs::write(&one, "").unwrap();
        fs::hard_link(&one, &two).unwrap();
        for name in [&one, &two] {
            let refused = of_store(name).unwrap_err().to_string();
            assert!(
                refused.contains("2 names (hard links)") && refused.contains("keep whichever you like"),
                "{refused}"
            );
        }
        // The name with the log is to be kept, whichever name was given.
        fs::write(root.path().join("one.db-wal"), "frames").unwrap();
        for name in [&one, &two] {
            let refused = of_store(name).unwrap_err().to_string();
            assert!(refused.contains(&format!("keep {}", one.display())), "{refused}");
        }
        fs::write(root.path().join("two.db-wal"), "frames").unwrap();
        assert!(of_store(&two).unwrap_err().to_string().contains("remove none of them"));
        fs::remove_file(root.path().join("one.db-wal")).unwrap();
        fs::remove_file(root.path().join("two.db-wal")).unwrap();
        let elsewhere = tempfile::tempdir_in(root.path()).unwrap();
        fs::hard_link(&one, elsewhere.path().join("three.db")).unwrap();
        assert!(of_store(&two).unwrap_err().to_string().contains("-inum"));
        drop(elsewhere);
        fs::remove_file(&one).unwrap();
        of_store(&two).unwrap();
    }
}
