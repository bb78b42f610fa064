//! The granted folder. Every lookup goes through `cap-std`, which lets no path leave the open folder, however it is
//! written and whatever links it meets. In a granted folder links are refused as well, as the reference does with a
//! root.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt, File, MetadataExt, OpenOptions, OpenOptionsExt};
use millrace_reactor::zcl1::FieldWriter;

use super::path::{as_the_system_finds, beneath_root};

/// Why a folder cannot be granted.
#[derive(Debug, thiserror::Error)]
#[error("the folder {path} cannot be granted: {source}")]
pub struct FileRootError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// An open folder, as `/` of a guest. Clones are the same folder.
#[derive(Clone, Debug)]
pub struct FileRoot {
    dir: Arc<Dir>,
    is_confined: bool,
}

/// How a request treats a link at the end of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkAtEnd {
    /// The request is about the file that the link leads to. In a granted folder such a path is denied.
    Follow,
    /// The request fails at the link. In a granted folder such a path is denied.
    Refuse,
    /// The request is about the link itself.
    Keep,
}

/// How to open a file: the flags of OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenFlags {
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) create: bool,
    pub(super) truncate: bool,
    pub(super) append: bool,
}

/// The entries of a folder as READDIR returns them, as many as fit.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) count: usize,
    pub(super) is_truncated: bool,
    pub(super) bytes: Vec<u8>,
}

/// Permissions that a guest may set; the others (set-user-id and the like) are dropped.
const MODE_MAX: u32 = 0o777;

impl FileRoot {
    /// Opens the folder, once: a folder that is renamed to its path later is not granted.
    ///
    /// # Errors
    ///
    /// [`FileRootError`] if there is no folder at the path, or it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<FileRoot, FileRootError> {
        let dir = Dir::open_ambient_dir(path.as_ref(), ambient_authority());
        let dir = dir.map_err(|source| FileRootError { path: path.as_ref().to_owned(), source })?;
        Ok(FileRoot { dir: Arc::new(dir), is_confined: true })
    }

    /// The whole file system, with paths as the operating system interprets them: relative to the working folder of the
    /// program, with `..`, through links. For guests that are code of the program itself, which nothing confines.
    ///
    /// # Errors
    ///
    /// [`FileRootError`] if the root of the file system cannot be opened.
    pub fn unconfined() -> Result<FileRoot, FileRootError> {
        FileRoot::open("/").map(|root| FileRoot { is_confined: false, ..root })
    }

    /// Returns the path relative to the folder; `None` if it is denied.
    pub(super) fn resolve(&self, path: &[u8], end: LinkAtEnd) -> Option<PathBuf> {
        match self.is_confined {
            true => beneath_root(path).filter(|path| !self.has_link(path, end != LinkAtEnd::Keep)),
            false => beneath_root(as_the_system_finds(path, end == LinkAtEnd::Follow).as_os_str().as_bytes()),
        }
    }

    /// Whether the path leads through a symbolic link. The last segment counts if `last_too`.
    fn has_link(&self, path: &Path, last_too: bool) -> bool {
        let is_link = |path: &Path| {
            self.dir.symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_symlink())
        };
        path.ancestors().skip(usize::from(!last_too)).filter(|path| !path.as_os_str().is_empty()).any(is_link)
    }

    /// Opens regular files only: a pipe or a device would block a worker.
    pub(super) fn open_file(&self, path: &Path, flags: OpenFlags, mode: u32) -> io::Result<std::fs::File> {
        // `std` creates files only for writing; a guest may create one for reading.
        if flags.create && !flags.write {
            let mut create = OpenOptions::new();
            create.write(true).create_new(true).mode(mode & MODE_MAX);
            match self.dir.open_with(path, &create) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let mut options = OpenOptions::new();
        options.read(flags.read).write(flags.write).append(flags.append);
        options.truncate(flags.truncate).create(flags.create && flags.write).mode(mode & MODE_MAX);
        // Without this, opening a pipe waits for its other end.
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        let file: File = self.dir.open_with(path, &options)?;
        match file.metadata()?.is_file() {
            true => Ok(file.into_std()),
            false => Err(rustix::io::Errno::INVAL.into()),
        }
    }

    pub(super) fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.mode(mode & MODE_MAX);
        self.dir.create_dir_with(path, &builder)
    }

    pub(super) fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.dir.remove_dir(path)
    }

    pub(super) fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.dir.remove_file(path)
    }

    /// Returns `u64 size, u64 mtime_ns, u32 mode, u32 uid, u32 gid, u32 0`. Describes a link itself, not its target.
    pub(super) fn stat(&self, path: &Path) -> io::Result<Vec<u8>> {
        let metadata = self.dir.symlink_metadata(path)?;
        let seconds = u64::try_from(metadata.mtime()).unwrap_or(0);
        let ns = u64::try_from(metadata.mtime_nsec()).unwrap_or(0);
        let mtime_ns = seconds.saturating_mul(1_000_000_000).saturating_add(ns);
        let mut extra = Vec::new();
        let mut fields = FieldWriter::new(&mut extra);
        fields.u64(metadata.size()).u64(mtime_ns).u32(metadata.mode());
        fields.u32(metadata.uid()).u32(metadata.gid()).u32(0);
        Ok(extra)
    }

    /// Reads entries in the order of the file system until `bytes_max` bytes are full.
    pub(super) fn read_dir(&self, path: &Path, bytes_max: usize) -> io::Result<Entries> {
        let mut entries = Entries::default();
        for entry in self.dir.read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name();
            if entries.bytes.len() + 8 + name.len() > bytes_max {
                entries.is_truncated = true;
                break;
            }
            let kind = match entry.file_type() {
                Err(_) => 0,
                Ok(kind) if kind.is_file() => 1,
                Ok(kind) if kind.is_dir() => 2,
                Ok(kind) if kind.is_symlink() => 3,
                Ok(_) => 4,
            };
            FieldWriter::new(&mut entries.bytes).u32(kind).prefixed(name.as_bytes());
            entries.count += 1;
        }
        Ok(entries)
    }
}
