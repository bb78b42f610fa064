//! The sockets of handles that listen for commits: datagram sockets in the lock folder, one for each handle.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

/// The beginning of a socket's name.
const PREFIX: &str = "news-";
/// Sockets in one lock folder. A handle that finds more listens to none, and polls.
const SOCKETS_MAX: usize = 1024;

/// The lock folder, as the addresses of sockets name it.
#[derive(Debug)]
pub(crate) struct SocketFolder {
    path: PathBuf,
    /// Open if the path is too long for an address (108 bytes): addresses then go through this descriptor. Linux only.
    opened: Option<File>,
}

impl SocketFolder {
    pub(crate) fn open(path: &Path) -> io::Result<SocketFolder> {
        let fits = SocketAddr::from_pathname(path.join(new_name())).is_ok();
        let opened = if fits { None } else { Some(File::open(path)?) };
        Ok(SocketFolder { path: path.to_owned(), opened })
    }

    /// Binds a socket under a name that was never used.
    pub(crate) fn bind(&self) -> io::Result<(OsString, UnixDatagram)> {
        if self.names()?.len() >= SOCKETS_MAX {
            return Err(io::Error::other(format!("{SOCKETS_MAX} processes listen already")));
        }
        let name = new_name();
        let socket = UnixDatagram::bind_addr(&self.address(&name)?)?;
        // Until here the umask has decided. Nobody else can enter the folder, which is of mode 0700.
        fs::set_permissions(self.path.join(&name), Permissions::from_mode(0o600))?;
        socket.set_nonblocking(true)?;
        Ok((name, socket))
    }

    /// Returns the names of all sockets, those of ended processes included.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            if name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
                names.push(name);
            }
        }
        Ok(names)
    }

    pub(crate) fn address(&self, name: &OsStr) -> io::Result<SocketAddr> {
        match &self.opened {
            None => SocketAddr::from_pathname(self.path.join(name)),
            Some(folder) => {
                let through = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
                SocketAddr::from_pathname(through.join(name))
            }
        }
    }

    pub(crate) fn has(&self, name: &OsStr) -> bool {
        fs::symlink_metadata(self.path.join(name)).is_ok()
    }

    /// Removes the socket of a handle that is closed or whose process has ended. Names are never used again, so a
    /// listener cannot be removed by mistake.
    pub(crate) fn remove(&self, name: &OsStr) {
        // Another process may have removed it; one that stays is removed by the next that commits.
        let _ = fs::remove_file(self.path.join(name));
    }
}

fn new_name() -> OsString {
    let random = RandomState::new().hash_one(std::time::SystemTime::now());
    format!("{PREFIX}{:x}-{random:016x}", std::process::id()).into()
}
