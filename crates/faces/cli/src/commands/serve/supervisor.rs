//! Tells the supervisor that started this process how the server is doing: the datagrams of `sd_notify(3)`, to the
//! socket that `NOTIFY_SOCKET` names. Without that variable nothing happens.
//!
//! Written here and not taken from a crate, because it is one `sendto` of a documented text, and the only difficulty,
//! the abstract address, is in the standard library.

use std::ffi::OsStr;
use std::fmt::Display;
#[cfg(target_os = "linux")]
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

const SOCKET: &str = "NOTIFY_SOCKET";
/// A supervisor that does not read must not hold up the server for longer.
const SEND_MAX: Duration = Duration::from_secs(1);

/// Everything accepts, or the last reload is over.
pub(super) fn ready(status: impl Display) {
    tell(&format!("READY=1\n{}", status_line(status)));
}

/// A reload begins. The time shows the supervisor that the answer is to its own signal.
pub(super) fn reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    let us = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1000);
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={us}\n{}", status_line("reading the settings again")));
}

pub(super) fn stopping() {
    tell(&format!("STOPPING=1\n{}", status_line("finishing what is in hand")));
}

/// Something to show to people.
pub(super) fn status(status: impl Display) {
    tell(&status_line(status));
}

/// Returns the field for people: a single line, whatever the text is.
fn status_line(status: impl Display) -> String {
    format!("STATUS={}", status.to_string().replace(['\r', '\n'], " "))
}

fn tell(text: &str) {
    if let Some(name) = std::env::var_os(SOCKET).filter(|name| !name.is_empty())
        && let Err(error) = send(&name, text)
    {
        tracing::warn!("the supervisor at {SOCKET} could not be told: {error}");
    }
}

fn send(name: &OsStr, text: &str) -> std::io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_MAX))?;
    socket.send_to_addr(text.as_bytes(), &address(name)?).map(|_| ())
}

/// A name that begins with `@` is in Linux's abstract namespace; all others are paths.
fn address(name: &OsStr) -> std::io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.as_bytes().strip_prefix(b"@") {
        return <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name);
    }
    SocketAddr::from_pathname(name)
}
