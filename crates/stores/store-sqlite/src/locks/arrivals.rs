//! Notices that another process opens the store, without polling: inotify on a file that handles of older versions open
//! before they read or write anything (`presence.rs`). Those do not tell of their commits. Linux only.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::locks::presence;

/// Room for many events; further ones are read in the next round.
const BUFFER_BYTES: usize = 1024;

#[derive(Debug)]
pub(crate) struct Arrivals(OwnedFd);

impl Arrivals {
    /// `folder` is the lock folder.
    pub(crate) fn watch(folder: &Path) -> io::Result<Arrivals> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let lost = WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        inotify::add_watch(&fd, presence::silent_file(folder), WatchFlags::OPEN | lost)?;
        Ok(Arrivals(fd))
    }

    /// Reads what has happened. Returns false if arrivals may not be noticed any more: the file has lost its name, so
    /// others open another one.
    pub(crate) fn read(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        loop {
            match reader.next() {
                // More events than the queue holds: the caller looks who is there in any case.
                Ok(event) if event.events().intersects(ReadFlags::OPEN | ReadFlags::QUEUE_OVERFLOW) => {}
                // An attribute may have been changed only, but a file that was removed looks the same.
                Ok(_) => return false,
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for Arrivals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
