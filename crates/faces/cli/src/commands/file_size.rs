//! The limit of file sizes (`ulimit -f`): a write beyond the limit must fail with an error instead of ending the
//! process.

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Installs a handler for SIGXFSZ, whose default action ends the process; with a handler, the write returns an error.
/// Must be called inside a runtime; holds until the process ends.
pub(super) fn refuse_instead_of_ending() {
    if let Err(error) = signal(SignalKind::from_raw(Signal::XFSZ.as_raw())) {
        tracing::warn!(%error, "a file that grows beyond the limit of file sizes will end this process");
    }
}
