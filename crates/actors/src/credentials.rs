//! Who a client of the loop is, and what only some may ask.

use std::sync::Arc;

use millrace_model::{OsMessage, Principal};
use serde_json::Value;

pub(crate) const AUTHENTICATE: &str = "Syscall.Authenticate";
pub(crate) const SHUTDOWN: &str = "Syscall.Shutdown";
pub(crate) const RELOAD: &str = "Syscall.Reload";

pub(crate) const REQUIRED: &str =
    "Authentication required: First message must be Syscall.Authenticate with a valid token";
/// Said to whoever asks for what [`needs_admin`] and is none.
pub const ADMIN_ONLY: &str = "Forbidden: this needs a token with the scope admin";

/// What a token stands for.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub by: Arc<Principal>,
    /// May stop the server and make it read its configuration again.
    pub admin: bool,
}

/// Looks a token up; `None` if it is not accepted.
pub type CheckToken = Arc<dyn Fn(&str) -> Option<Credentials> + Send + Sync>;

/// The token in a `Syscall.Authenticate`.
pub(crate) fn shown(message: &OsMessage) -> Option<String> {
    (message.ty.as_str() == AUTHENTICATE).then(|| token_of(message)).flatten()
}

pub(crate) fn token_of(message: &OsMessage) -> Option<String> {
    let data: Value = serde_json::from_str(message.data.as_str()).ok()?;
    data.get("token")?.as_str().map(str::to_owned)
}

/// Whether it is for administrators.
pub fn needs_admin(message: &OsMessage) -> bool {
    message.kind.is_request() && matches!(message.ty.as_str(), SHUTDOWN | RELOAD)
}
