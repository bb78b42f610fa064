//! The files under check, each read once.

use std::path::Path;

use anyhow::{Context, Result};

use super::size::FILE_BYTES_MAX;

#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

#[derive(Debug)]
pub(crate) struct File {
    /// The path relative to the root, with forward slashes.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// The content. Empty for binary files and for files too large to be source code.
    pub(crate) text: String,
}

impl Tree {
    pub(crate) fn read(root: &Path, paths: Vec<String>) -> Result<Tree> {
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let place = root.join(&path);
            // Git also lists files deleted since, symbolic links, and nested repositories.
            let Some(metadata) = place.symlink_metadata().ok().filter(|metadata| metadata.is_file()) else {
                continue;
            };
            let bytes = metadata.len();
            let text = if bytes > FILE_BYTES_MAX {
                String::new()
            } else {
                let content = std::fs::read(&place).with_context(|| format!("cannot read {path}"))?;
                text_of(content)
            };
            files.push(File { path, bytes, text });
        }
        Ok(Tree { files })
    }

    pub(crate) fn find(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.has_extension(&["rs"]))
    }
}

impl File {
    pub(crate) fn has_extension(&self, extensions: &[&str]) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, extension)| extensions.contains(&extension))
    }

    pub(crate) fn numbered_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Returns the crate's name, such as `bus` for `crates/engines/bus/src/lib.rs`.
    pub(crate) fn room(&self) -> Option<&str> {
        let (_, in_floor) = self.path.strip_prefix("crates/")?.split_once('/')?;
        in_floor.split_once('/').map(|(room, _)| room)
    }

    /// Returns the crate's folder, such as `crates/engines/bus` for `crates/engines/bus/src/lib.rs`. A file directly
    /// below `crates` counts as a folder of its own.
    pub(crate) fn crate_folder(&self) -> Option<String> {
        let mut parts = self.path.strip_prefix("crates/")?.splitn(3, '/');
        let (floor, room) = (parts.next()?, parts.next());
        Some(room.map_or_else(|| format!("crates/{floor}"), |room| format!("crates/{floor}/{room}")))
    }
}

fn text_of(content: Vec<u8>) -> String {
    match String::from_utf8(content) {
        Ok(text) if !text.contains('\0') => text,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::tree_of;

    #[test]
    fn binary_content_is_not_text() {
        assert_eq!(text_of(b"plain\n".to_vec()), "plain\n");
        assert_eq!(text_of(b"nul\0".to_vec()), "");
        assert_eq!(text_of(vec![0xff, 0xfe]), "");
    }

    #[test]
    fn a_room_is_the_folder_below_crates() {
        let tree = tree_of(&[
            ("crates/engines/bus/src/lib.rs", ""),
            ("xtask/src/main.rs", ""),
            ("crates/README.md", ""),
        ]);
        let rooms: Vec<_> = tree.files.iter().map(File::room).collect();
        assert_eq!(rooms, [Some("bus"), None, None]);
    }
}
