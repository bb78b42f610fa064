//! A path from a guest: absolute, and interpreted beneath the granted folder.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A longer segment cannot name a file on any usual file system.
const SEGMENT_BYTES_MAX: usize = 255;

/// Returns the path relative to the folder; `None` if the path is not absolute, or has a segment that is denied (`..`,
/// or too long). The folder itself is `.`.
pub(super) fn beneath_root(path: &[u8]) -> Option<PathBuf> {
    let rest = path.strip_prefix(b"/")?;
    let mut relative = PathBuf::new();
    for segment in rest.split(|byte| *byte == b'/').filter(|segment| !matches!(segment, [] | [b'.'])) {
        if segment == b".." || segment.len() > SEGMENT_BYTES_MAX {
            return None;
        }
        relative.push(OsStr::from_bytes(segment));
    }
    Some(if relative.as_os_str().is_empty() { Path::new(".").to_owned() } else { relative })
}

/// Returns an absolute path, without `..` and without links, to the file that the operating system finds at `path`. The
/// last segment may be a link, or missing, unless `follows_last` is set and it exists. A path whose folder does not
/// exist is returned as it is, so that the request fails.
pub(super) fn as_the_system_finds(path: &[u8], follows_last: bool) -> PathBuf {
    let path = Path::new(OsStr::from_bytes(path));
    let followed = if follows_last { path.canonicalize().ok() } else { None };
    let with_folder_followed = || {
        let (folder, name) = (path.parent()?, path.file_name()?);
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        Some(folder.canonicalize().ok()?.join(name))
    };
    // `/`, and paths that end with `..`, have no last segment that could be a link.
    let whole = || path.file_name().is_none().then(|| path.canonicalize().ok()).flatten();
    let found = followed.or_else(with_folder_followed).or_else(whole);
    found.or_else(|| std::path::absolute(path).ok()).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_of_the_system_lose_their_links_and_dots() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        fs::create_dir(real.join("a")).unwrap();
        fs::write(real.join("a/file"), "").unwrap();
        symlink(real.join("a"), real.join("to_a")).unwrap();
        symlink("file", real.join("a/to_file")).unwrap();
        let found = |path: &str, follows_last| {
            let path = real.join(path);
            let found = as_the_system_finds(path.as_os_str().as_bytes(), follows_last);
            found.strip_prefix(&real).map(Path::to_owned).unwrap()
        };
        assert_eq!(found("to_a/../to_a/file", true), Path::new("a/file"));
        assert_eq!(found("to_a/to_file", true), Path::new("a/file"));
        assert_eq!(found("to_a/to_file", false), Path::new("a/to_file"));
        assert_eq!(found("to_a/new", true), Path::new("a/new"));
        assert_eq!(found("to_a", false), Path::new("to_a"));
        assert_eq!(found("to_a/..", false), Path::new(""));
        assert_eq!(found("no/such", true), Path::new("no/such"));
        assert_eq!(as_the_system_finds(b"/", false), Path::new("/"));
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(as_the_system_finds(b"new", false), here.join("new"));
        assert_eq!(as_the_system_finds(b".", true), here);
    }

    #[test]
    fn paths_stay_beneath_the_root() {
        let of = |path: &str| beneath_root(path.as_bytes());
        assert_eq!(of("/a/b"), Some("a/b".into()));
        assert_eq!(of("//a/./b/"), Some("a/b".into()));
        assert_eq!(of("/"), Some(".".into()));
        for denied in ["a", "", "./a", "/..", "/a/../b", "/a/..", &format!("/{}", "x".repeat(256))] {
            assert_eq!(of(denied), None, "{denied}");
        }
        assert_eq!(of("/...").map(|path| path.as_os_str().len()), Some(3));
    }
}
