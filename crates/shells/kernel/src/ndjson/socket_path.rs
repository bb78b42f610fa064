//! The socket's file. Only one server serves it, and only its owner can reach it.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs};

const FOLDER: &str = "millrace";
const SOCKET: &str = "millrace.sock";
/// The socket's name in the folder in which it is bound. Short, because a path of a socket may have only about a
/// hundred bytes.
const SOCKET_INSIDE: &str = "s";
const LOCK_SUFFIX: &str = ".lock";
const FOLDER_MODE: u32 = 0o700;
const SOCKET_MODE: u32 = 0o600;

#[derive(Debug, thiserror::Error)]
pub enum SocketPathError {
    #[error("socket {0:?} is served by another process: stop it, or give another path")]
    Taken(PathBuf),
    #[error("socket {0:?} is there and is no socket: remove it, or give another path")]
    NoSocket(PathBuf),
    #[error("the folder {0:?} belongs to somebody else: give another path")]
    Foreign(PathBuf),
    #[error("socket {path:?}: {error}")]
    Io { path: PathBuf, error: io::Error },
}

/// Returns `$XDG_RUNTIME_DIR/millrace/millrace.sock`, else the same in the directory for temporary files.
pub fn default_path() -> PathBuf {
    let base = env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    base.unwrap_or_else(env::temp_dir).join(FOLDER).join(SOCKET)
}

/// A listening socket that is still under a temporary path, until [`SocketFile::open`]. Dropping it removes the file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// The current path of the socket: `path` once it was [`SocketFile::open`]ed.
    lies: PathBuf,
    /// The folder it was bound in, which nobody else can enter.
    bound_in: PathBuf,
    /// Held as long as this value lives; the system releases it however the process ends. The file is never removed:
    /// otherwise two servers could each hold a lock on a file of this name.
    _lock: File,
}

impl SocketFile {
    /// Binds a socket for `path`, unless a running server has it. The socket file of a dead server will be replaced.
    pub fn bind(path: &Path) -> Result<(SocketFile, UnixListener), SocketPathError> {
        let path = &std::path::absolute(path).map_err(|error| io_error(path, error))?;
        let failed = |error| io_error(path, error);
        let folder = path.parent().unwrap_or(path);
        let made = make_folder(folder).map_err(|error| io_error(folder, error))?;
        let lock = lock(path)?;
        match fs::symlink_metadata(path) {
            Ok(found) if !std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()) => {
                return Err(SocketPathError::NoSocket(path.clone()));
            }
            // A server that does not use our lock file.
            Ok(_) if UnixStream::connect(path).is_ok() => return Err(SocketPathError::Taken(path.clone())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        static BOUND: AtomicU32 = AtomicU32::new(0);
        let number = BOUND.fetch_add(1, Ordering::Relaxed);
        let bound_in = folder.join(format!(".{}.{number}", std::process::id()));
        let listener = bind_in(&bound_in).map_err(failed)?;
        let lies = bound_in.join(SOCKET_INSIDE);
        let place = SocketFile { path: path.clone(), lies, bound_in, _lock: lock };
        fs::set_permissions(&place.lies, Permissions::from_mode(SOCKET_MODE)).map_err(failed)?;
        if !made && path == &default_path() {
            place.own_folder(folder)?;
        }
        listener.set_nonblocking(true).map_err(failed)?;
        Ok((place, listener))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the socket to its final path: clients that connect there are accepted.
    pub fn open(&mut self) -> Result<(), SocketPathError> {
        fs::rename(&self.lies, &self.path).map_err(|error| io_error(&self.path, error))?;
        self.lies.clone_from(&self.path);
        clear(&self.bound_in).map_err(|error| io_error(&self.bound_in, error))
    }

    /// Checks that the folder is ours: in a directory that everybody may write to, another user may have made it first.
    fn own_folder(&self, folder: &Path) -> Result<(), SocketPathError> {
        let failed = |error| io_error(folder, error);
        let found = fs::symlink_metadata(folder).map_err(failed)?;
        let ours = fs::symlink_metadata(&self.lies).map_err(failed)?.uid();
        if !found.is_dir() || found.uid() != ours {
            return Err(SocketPathError::Foreign(folder.to_owned()));
        }
        if found.mode() & 0o777 != FOLDER_MODE {
            fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE)).map_err(failed)?;
        }
        Ok(())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.lies).and_then(|()| clear(&self.bound_in)) {
            tracing::warn!(path = ?self.lies, %error, "the socket could not be removed");
        }
    }
}

/// Returns true if the folder was made; an existing one is left as it is.
fn make_folder(folder: &Path) -> io::Result<bool> {
    if folder.is_dir() {
        return Ok(false);
    }
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    Ok(true)
}

/// Binds a socket inside a new folder that only its owner can enter. A bound socket accepts at once and has the mode
/// that the umask leaves; the umask belongs to all threads of the process and is not touched.
fn bind_in(folder: &Path) -> io::Result<UnixListener> {
    // A process that had the same process id may have been killed half-way.
    clear(folder)?;
    DirBuilder::new().mode(FOLDER_MODE).create(folder)?;
    let bound = UnixListener::bind(folder.join(SOCKET_INSIDE));
    if bound.is_err() {
        clear(folder)?;
    }
    bound
}

fn clear(folder: &Path) -> io::Result<()> {
    match remove(&folder.join(SOCKET_INSIDE)).and_then(|()| fs::remove_dir(folder)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        cleared => cleared,
    }
}

fn lock(path: &Path) -> Result<File, SocketPathError> {
    let mut name = path.as_os_str().to_owned();
    name.push(LOCK_SUFFIX);
    let name = PathBuf::from(name);
    let failed = |error| io_error(&name, error);
    let mut options = File::options();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, SOCKET_MODE);
    let file = options.create(true).truncate(false).write(true).open(&name).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(SocketPathError::Taken(path.to_owned())),
        Err(fs::TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn io_error(path: &Path, error: io::Error) -> SocketPathError {
    SocketPathError::Io { path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The socket itself may be open to everybody for a moment: the folder around it is not.
    #[test]
    fn a_socket_is_bound_where_nobody_else_can_enter() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("inside");
        let listener = bind_in(&folder).expect("bound");
        assert_eq!(fs::metadata(&folder).expect("there").mode() & 0o777, FOLDER_MODE);
        // Files of a killed process are cleared away.
        drop(listener);
        bind_in(&folder).expect("bound again");
        clear(&folder).expect("cleared");
        assert!(!folder.exists());
        clear(&folder).expect("nothing to clear");
    }

    #[test]
    fn two_sockets_of_one_process_are_not_in_each_others_way() {
        let root = tempfile::tempdir().expect("a folder");
        let (mut one, _) = SocketFile::bind(&root.path().join("one")).expect("taken");
        let (mut two, _) = SocketFile::bind(&root.path().join("two")).expect("taken");
        one.open().and_then(|()| two.open()).expect("both open");
        let names = fs::read_dir(root.path()).expect("a folder").count();
        assert_eq!(names, 4, "two sockets and their locks");
        drop((one, two));
        assert_eq!(fs::read_dir(root.path()).expect("a folder").count(), 2, "their locks");
    }
}
