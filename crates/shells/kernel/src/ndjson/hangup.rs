//! Tells a client that has closed the connection from a client that has only stopped writing.
//!
//! Both read as the end of the stream. The poller tells them apart: only a full hang-up closes the way to write, too.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;

use tokio::io::Interest;
use tokio::net::UnixStream;

/// Waits until the other side has closed both directions.
pub(super) async fn hung_up(stream: &UnixStream) -> io::Result<()> {
    // Uses a descriptor of its own, so that clearing readiness here takes none away from the task that writes.
    let own = UnixStream::from_std(StdStream::from(stream.as_fd().try_clone_to_owned()?))?;
    loop {
        if own.ready(Interest::WRITABLE).await?.is_write_closed() {
            return Ok(());
        }
        let forget = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        // The error is intended: `WouldBlock` clears the readiness.
        let _ = own.try_io(Interest::WRITABLE, forget);
    }
}
