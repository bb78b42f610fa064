//! The limit of file sizes (`ulimit -f`): a write beyond it is to fail, not to end the process.

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Takes the place of the signal's default, which ends the process; the write returns an error then. Called inside a
/// runtime; holds until the process ends.
pub(super) fn refuse_instead_of_ending() {
    if let Err(error) = signal(SignalKind::from_raw(Signal::XFSZ.as_raw())) {
        tracing::warn!(%error, "a file that grows beyond the limit of file sizes will end this process");
    }
}
