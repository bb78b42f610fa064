//! The files of a granted folder. No path, however it is spelled and whatever symbolic links it meets, leaves the
//! folder: every lookup goes through `cap-std`, which asks the kernel to resolve beneath the open folder (`openat2`
//! with `RESOLVE_BENEATH`) and walks the components itself where the kernel cannot.
//!
//! This file knows no wire shapes; `fs.rs` turns its answers into those of both generations.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt};

use super::call::cut;

/// Names tried for the temporary file of an atomic write: each one that is taken costs an attempt.
const TEMPORARY_NAMES_MAX: u32 = 16;

/// The kind of a file error, in the words that generation B sends to its programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsErrorKind {
    NotFound,
    AlreadyExists,
    PermissionDenied,
    Conflict,
    /// The content or the list does not fit a reply; programs see this kind as `other`.
    TooLarge,
    Other,
}

impl FsErrorKind {
    pub fn as_str(self) -> &'static str {
        match self {
            FsErrorKind::NotFound => "not-found",
            FsErrorKind::AlreadyExists => "already-exists",
            FsErrorKind::PermissionDenied => "permission-denied",
            FsErrorKind::Conflict => "conflict",
            FsErrorKind::TooLarge | FsErrorKind::Other => "other",
        }
    }
}

/// A failed operation on a file: an answer for the program, not a failure of its run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FsError {
    pub kind: FsErrorKind,
    /// The system's error number, negative as in Node; 1 where the system gave none.
    pub code: i32,
    pub message: String,
}

impl FsError {
    fn other(message: String) -> FsError {
        FsError { kind: FsErrorKind::Other, code: 1, message }
    }

    fn of(path: &str, error: &io::Error) -> FsError {
        use io::ErrorKind as E;
        let kind = match error.kind() {
            E::NotFound => FsErrorKind::NotFound,
            E::AlreadyExists => FsErrorKind::AlreadyExists,
            E::PermissionDenied => FsErrorKind::PermissionDenied,
            E::DirectoryNotEmpty | E::ResourceBusy | E::ExecutableFileBusy => FsErrorKind::Conflict,
            _ => FsErrorKind::Other,
        };
        let code = error.raw_os_error().map_or(1, |number| -number);
        // Without an error number the refusal comes from `cap-std`: the path would have left the folder.
        let escape = kind == FsErrorKind::PermissionDenied && error.raw_os_error().is_none();
        let path = cut(path);
        let message = if escape {
            format!("{path:?} leads outside the granted folder")
        } else {
            format!("{path:?}: {error}")
        };
        FsError { kind, code, message }
    }

    pub(super) fn too_large(path: &str, bytes_max: usize) -> FsError {
        let message = format!("{:?} takes more than the {bytes_max} bytes that fit a reply", cut(path));
        FsError { kind: FsErrorKind::TooLarge, code: 1, message }
    }
}

/// A folder that cannot be granted.
#[derive(Debug, thiserror::Error)]
#[error("the folder {path} cannot be granted: {source}")]
pub struct FolderError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// An open folder, with everything beneath it.
#[derive(Debug)]
pub struct Folder {
    dir: Dir,
    /// Makes names of temporary files differ within this process.
    temporaries: AtomicU64,
}

impl Folder {
    /// Opens the folder, once: a folder that is renamed to its path later is not granted.
    pub fn open(path: impl AsRef<Path>) -> Result<Folder, FolderError> {
        let dir = Dir::open_ambient_dir(path.as_ref(), ambient_authority());
        let dir = dir.map_err(|source| FolderError { path: path.as_ref().to_owned(), source })?;
        Ok(Folder { dir, temporaries: AtomicU64::new(0) })
    }

    /// Reads a file that holds at most `bytes_max` bytes.
    pub fn read(&self, path: &str, bytes_max: usize) -> Result<Vec<u8>, FsError> {
        let mut options = OpenOptions::new();
        options.read(true);
        let file = self.open_file(path, &mut options)?;
        let mut bytes = Vec::new();
        let mut limited = file.take((bytes_max as u64).saturating_add(1));
        limited.read_to_end(&mut bytes).map_err(|error| FsError::of(path, &error))?;
        if bytes.len() > bytes_max { Err(FsError::too_large(path, bytes_max)) } else { Ok(bytes) }
    }

    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FsError> {
        let mut options = OpenOptions::new();
        let mut file = self.open_file(path, options.write(true).create(true).truncate(true))?;
        file.write_all(bytes).map_err(|error| FsError::of(path, &error))
    }

    /// Creates a file. Fails with [`FsErrorKind::AlreadyExists`] if there is anything at the path, even a dangling
    /// link.
    pub fn create(&self, path: &str, bytes: &[u8]) -> Result<(), FsError> {
        let mut options = OpenOptions::new();
        let mut file = self.open_file(path, options.write(true).create_new(true))?;
        file.write_all(bytes).map_err(|error| FsError::of(path, &error))
    }

    /// Replaces the whole file: readers see the old content or the new, also after a crash of the machine.
    pub fn write_atomic(&self, path: &str, bytes: &[u8]) -> Result<(), FsError> {
        let temporary = self.write_temporary(path, bytes)?;
        let renamed = self.dir.rename(&temporary, &self.dir, path);
        renamed.map_err(|error| {
            // The first error is the one to report; a temporary file that stays is visible by its name.
            let _ = self.dir.remove_file(&temporary);
            FsError::of(path, &error)
        })
    }

    pub fn exists(&self, path: &str) -> bool {
        self.dir.exists(path)
    }

    /// Lists the entries of a folder as `path/name`, in the order of their names, if they fit `bytes_max` bytes
    /// together.
    pub fn list(&self, path: &str, bytes_max: usize) -> Result<Vec<String>, FsError> {
        let of = |error: io::Error| FsError::of(path, &error);
        let parent = path.trim_end_matches('/');
        let mut names = Vec::new();
        let mut bytes = 0;
        for entry in self.dir.read_dir(path).map_err(of)? {
            let name = entry.map_err(of)?.file_name();
            let child = format!("{parent}/{}", name.to_string_lossy());
            bytes += child.len();
            if bytes > bytes_max {
                return Err(FsError::too_large(path, bytes_max));
            }
            names.push(child);
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Removes a file, an empty folder, or a link (never what the link points to).
    pub fn remove(&self, path: &str) -> Result<(), FsError> {
        let of = |error: io::Error| FsError::of(path, &error);
        let metadata = self.dir.symlink_metadata(path).map_err(of)?;
        let removed = if metadata.is_dir() { self.dir.remove_dir(path) } else { self.dir.remove_file(path) };
        removed.map_err(of)
    }

    pub fn create_dir_all(&self, path: &str) -> Result<(), FsError> {
        self.dir.create_dir_all(path).map_err(|error| FsError::of(path, &error))
    }

    pub fn rename(&self, from: &str, to: &str) -> Result<(), FsError> {
        let renamed = self.dir.rename(from, &self.dir, to);
        renamed.map_err(|error| FsError::of(&format!("{from} to {to}"), &error))
    }

    /// Opens regular files only: a pipe or a device in the folder would block the host.
    fn open_file(&self, path: &str, options: &mut OpenOptions) -> Result<File, FsError> {
        let of = |error: io::Error| FsError::of(path, &error);
        // Without this, opening a pipe waits for its other end.
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        let file = self.dir.open_with(path, options).map_err(of)?;
        if file.metadata().map_err(of)?.is_file() {
            Ok(file)
        } else {
            Err(FsError::other(format!("{:?} is not a regular file", cut(path))))
        }
    }

    fn write_temporary(&self, path: &str, bytes: &[u8]) -> Result<String, FsError> {
        for _ in 0..TEMPORARY_NAMES_MAX {
            let number = self.temporaries.fetch_add(1, Ordering::Relaxed);
            let name = format!("{path}.tmp-{}-{number}", std::process::id());
            let mut options = OpenOptions::new();
            let mut file = match self.open_file(&name, options.write(true).create_new(true)) {
                Ok(file) => file,
                Err(error) if error.kind == FsErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            };
            let written = file.write_all(bytes).and_then(|()| file.sync_all());
            return match written {
                Ok(()) => Ok(name),
                Err(error) => {
                    let _ = self.dir.remove_file(&name);
                    Err(FsError::of(path, &error))
                }
            };
        }
        Err(FsError {
            kind: FsErrorKind::AlreadyExists,
            code: 1,
            message: format!("{:?}: every name for a temporary file beside it is taken", cut(path)),
        })
    }
}
