//! Folders that survive a power failure.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::files::private;

/// Returns the folder that contains the file.
pub(crate) fn parent_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Syncs a folder: without that, a synced file or folder can still vanish with its directory entry.
pub(crate) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes the folder and those above it, for their owner only, and syncs each one that got a new entry.
pub(crate) fn create(folder: &Path) -> io::Result<()> {
    let missing = missing(folder)?;
    private::create_folders(folder)?;
    // From the top down: an entry is worth nothing before its own folder can be found.
    missing.iter().rev().try_for_each(|made| sync(parent_of(made)))
}

/// Returns the folders that do not exist, the innermost first.
fn missing(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut missing = Vec::new();
    for folder in folder.ancestors().take_while(|folder| !folder.as_os_str().is_empty()) {
        if folder.try_exists()? {
            break;
        }
        missing.push(folder.to_owned());
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_folder_that_is_made_is_known() {
        let root = tempfile::tempdir().unwrap();
        let (a, c) = (root.path().join("a"), root.path().join("a/b/c"));
        assert_eq!(missing(&c).unwrap(), [c.clone(), root.path().join("a/b"), a.clone()]);
        create(&a).unwrap();
        assert_eq!(missing(&c).unwrap(), [c.clone(), root.path().join("a/b")]);
        create(&c).unwrap();
        assert!(missing(&c).unwrap().is_empty() && c.is_dir());
        create(&c).unwrap();
    }

    #[test]
    fn a_bare_name_lies_in_the_current_folder() {
        assert_eq!(parent_of(Path::new("store.db")), Path::new("."));
        assert!(missing(Path::new(".")).unwrap().is_empty());
        assert_eq!(missing(Path::new("no-such/deeper")).unwrap().len(), 2);
    }
}
