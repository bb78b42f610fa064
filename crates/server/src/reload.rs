//! Replacing tokens and certificate while the server runs. All of it is checked first, so a mistake changes nothing.

use std::sync::Arc;

use crate::access::TokenSettings;
use crate::app::SharedApp;
use crate::settings::TlsFiles;
use crate::tls::{Certificate, TlsError};

#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    /// A file that lost its tokens by mistake must not let everybody in.
    #[error("there are no tokens any more, which would open everything: restart the server if this is meant")]
    Opens,
    #[error("there were no tokens before: restart the server to ask everybody for one")]
    Closes,
    #[error("TLS cannot be switched on or off: restart the server")]
    Switches,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reloaded {
    pub tokens: usize,
    /// Tokens that were taken away or changed. Connections that came in with one are closed.
    pub revoked: usize,
}

/// Outlives no server: without one it changes nothing that anybody sees.
#[derive(Clone)]
pub struct Reloader {
    app: SharedApp,
    tls: Option<Arc<Certificate>>,
}

impl std::fmt::Debug for Reloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloader").finish_non_exhaustive()
    }
}

impl Reloader {
    pub(crate) fn new(app: SharedApp, tls: Option<Arc<Certificate>>) -> Reloader {
        Reloader { app, tls }
    }

    /// These tokens and this certificate from now on. Reads files.
    pub fn reload(&self, tokens: &[TokenSettings], tls: Option<&TlsFiles>) -> Result<Reloaded, ReloadError> {
        match (self.app.tokens.is_open(), tokens.is_empty()) {
            (false, true) => return Err(ReloadError::Opens),
            (true, false) => return Err(ReloadError::Closes),
            _ => {}
        }
        match (&self.tls, tls) {
            (Some(shown), Some(files)) => shown.replace(Certificate::read(files)?),
            (None, None) => {}
            _ => return Err(ReloadError::Switches),
        }
        let revoked = self.app.tokens.replace(tokens);
        self.app.reloads.send_modify(|reloads| *reloads += 1);
        Ok(Reloaded { tokens: tokens.len(), revoked })
    }
}
