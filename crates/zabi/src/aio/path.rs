//! A path that a guest named: absolute, and taken as a path beneath the granted folder.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A longer segment cannot name a file on any usual file system.
const SEGMENT_BYTES_MAX: usize = 255;

/// Returns the path relative to the folder; `None` if the path is not absolute, or has a segment that is denied (`..`, or
/// too long). The folder itself is `.`.
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

#[cfg(test)]
mod tests {
    use super::*;

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
