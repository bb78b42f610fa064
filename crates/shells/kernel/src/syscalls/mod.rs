//! The capabilities of the loop itself: Syscall, Reload and Trace. (The engine itself implements Timer and Sys.)

mod describe;
mod syscall;
mod trace;

use std::sync::Arc;

use tokio::sync::mpsc;

pub(crate) use self::trace::shown;

use crate::capabilities::capability::Capability;
use crate::clients::credentials::CheckToken;
use crate::kernel_thread::start::HostRequest;
use crate::settings::KernelSettings;

/// The most that the envelope of a reply takes: three ids of the longest kind, every byte escaped.
const ENVELOPE_BYTES: usize = 6 * 1024;

pub(crate) fn all(
    settings: &Arc<KernelSettings>,
    check_token: Option<CheckToken>,
    asked: &mpsc::Sender<HostRequest>,
) -> Vec<Capability> {
    vec![
        syscall::syscall(settings, check_token, asked.clone()),
        syscall::reload(asked.clone()),
        trace::trace(settings.line_bytes_max),
    ]
}

/// How many bytes of an answer are left for data that comes in pages.
fn page_bytes(line_bytes_max: usize) -> usize {
    line_bytes_max.saturating_sub(ENVELOPE_BYTES)
}
