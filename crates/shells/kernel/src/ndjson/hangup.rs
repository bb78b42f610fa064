//! Telling a client that is gone from one that only stopped writing.
//!
//! Both read as the end of the stream. The poller tells them apart: only a full hang-up closes the way to write, too.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;

use tokio::io::Interest;
use tokio::net::UnixStream;

/// Waits until the other side has closed both directions.
pub(super) async fn hung_up(stream: &UnixStream) -> io::Result<()> {
    // A descriptor of its own, so that forgetting readiness here takes none away from who writes.
    let own = UnixStream::from_std(StdStream::from(stream.as_fd().try_clone_to_owned()?))?;
    loop {
        if own.ready(Interest::WRITABLE).await?.is_write_closed() {
            return Ok(());
        }
        let forget = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        // That it would block is what was asked for.
        let _ = own.try_io(Interest::WRITABLE, forget);
    }
}
