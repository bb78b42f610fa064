//! Tells other handles that this one has committed something: sends an empty datagram to the socket of each.
//!
//! No call of the system is made for a commit while nobody else listens. A handle that begins to listen binds its socket,
//! takes the write lock, and raises a number in the lock file `writer` ([`ListenersMark`]), which every writer reads anyway
//! when it gets the write lock. A commit that finds another number than the last one lists the sockets again. So a commit
//! that gets the write lock after a listener has announced itself tells that listener, and an earlier one is seen by the
//! listener when it then reads the store.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::locks::holder::ListenersMark;
use crate::locks::news_sockets::SocketFolder;

#[derive(Debug)]
pub(crate) struct NewsTeller {
    folder: PathBuf,
    state: Mutex<TellerState>,
}

#[derive(Debug, Default)]
struct TellerState {
    /// The mark at which the listeners were listed. `None` lists them with the next commit.
    listed_at: Option<ListenersMark>,
    listeners: Vec<OsString>,
    /// The socket on which this handle itself listens: its own commits are no news.
    own: Option<OsString>,
    /// Made when somebody listens for the first time.
    sender: Option<(SocketFolder, UnixDatagram)>,
}

impl NewsTeller {
    pub(crate) fn new(folder: &Path) -> NewsTeller {
        NewsTeller { folder: folder.to_owned(), state: Mutex::default() }
    }

    /// Sets the socket that is this handle's own.
    pub(crate) fn set_own(&self, name: &OsStr) {
        let mut state = self.state.lock();
        state.listeners.retain(|listener| listener != name);
        state.own = Some(name.to_owned());
    }

    /// Tells all listeners. Must be called after a commit is visible, with the mark that was found under its write lock.
    /// Never waits for a listener. A listener that cannot be told polls (`millrace_store::Pace`).
    pub(crate) fn tell(&self, mark: Option<ListenersMark>) {
        let mut state = self.state.lock();
        if state.listed_at != mark || mark.is_none() {
            // A folder that cannot be listed is listed again with the next commit.
            let listed = state.list(&self.folder);
            state.listed_at = mark.filter(|_| listed.is_ok());
        }
        let TellerState { listeners, sender: Some((folder, socket)), .. } = &mut *state else { return };
        listeners.retain(|listener| is_there(folder, listener, send(folder, socket, listener)));
    }
}

impl TellerState {
    fn list(&mut self, folder: &Path) -> io::Result<()> {
        if self.sender.is_none() {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            self.sender = Some((SocketFolder::open(folder)?, socket));
        }
        let Some((folder, _)) = &self.sender else { return Ok(()) };
        self.listeners = folder.names()?;
        self.listeners.retain(|listener| Some(listener) != self.own.as_ref());
        Ok(())
    }
}

fn send(folder: &SocketFolder, socket: &UnixDatagram, listener: &OsStr) -> io::Result<usize> {
    socket.send_to_addr(&[], &folder.address(listener)?)
}

/// Returns whether the listener is to be told of the next commit, too.
fn is_there(folder: &SocketFolder, listener: &OsStr, sent: io::Result<usize>) -> bool {
    match sent.map_err(|error| error.kind()) {
        Err(ErrorKind::NotFound) => false,
        Err(ErrorKind::ConnectionRefused) => {
            folder.remove(listener);
            false
        }
        // A full queue is no loss: the listener has not read an earlier datagram yet, and polls after it has.
        Ok(_) | Err(_) => true,
    }
}
