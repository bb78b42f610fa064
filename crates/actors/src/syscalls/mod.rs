//! The capabilities of the loop itself. (Timer and Sys are the engine's own.)

mod describe;
mod syscall;
mod trace;

use std::sync::Arc;

use tokio::sync::mpsc;

pub(crate) use self::trace::shown;

use crate::capability::Capability;
use crate::credentials::CheckToken;
use crate::settings::LoopSettings;
use crate::start::Asked;

pub(crate) fn all(
    settings: &Arc<LoopSettings>,
    check_token: Option<CheckToken>,
    asked: &mpsc::Sender<Asked>,
) -> Vec<Capability> {
    vec![
        syscall::syscall(settings, check_token, asked.clone()),
        syscall::reload(asked.clone()),
        trace::trace(settings.line_bytes_max),
    ]
}
