//! Replaces tokens, certificate and child processes while the server runs. Everything is checked first, so a mistake in
//! the configuration changes nothing.

use std::sync::Arc;

use millrace_child::{Changed, ChildSettings, Children};
use millrace_wire::http::SettingDoc;
use tokio::sync::Mutex;

use crate::access::{TokenSettings, warn_of_expired};
use crate::edge::SharedEdge;
use crate::settings::TlsFiles;
use crate::tls::{Certificate, TlsError};

#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    /// A configuration file that lost its tokens by mistake must not let everybody in.
    #[error("there are no tokens any more, which would open everything: restart the server if this is meant")]
    Opens,
    #[error("there were no tokens before: restart the server to ask everybody for one")]
    Closes,
    #[error(transparent)]
    Capability(#[from] millrace_child::ReloadError),
    #[error("TLS cannot be switched on or off: restart the server")]
    Switches,
}

/// The configuration from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    pub tokens: Vec<TokenSettings>,
    pub tls: Option<TlsFiles>,
    pub capabilities: Vec<ChildSettings>,
    /// The settings that a reload can change, as `GET /settings` shows them.
    pub described: Vec<SettingDoc>,
}

impl Reload {
    /// The settings after this reload, as `GET /settings` shows them.
    pub fn described_after(&self, known: &[SettingDoc]) -> Arc<[SettingDoc]> {
        let newest =
            |one: &SettingDoc| self.described.iter().find(|new| new.name == one.name).unwrap_or(one).clone();
        known.iter().map(newest).collect()
    }
}

/// The outcome of a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    pub tokens: usize,
    /// Tokens that were removed or changed. Connections that authenticated with one are closed.
    pub revoked: usize,
    pub capabilities: Changed,
}

/// Reloads the configuration of a running server. Has no effect once the server has stopped.
#[derive(Clone)]
pub struct Reloader {
    edge: SharedEdge,
    tls: Option<Arc<Certificate>>,
    /// `None` on a server that follows: only the leader runs child processes.
    children: Arc<Mutex<Option<Children>>>,
}

impl std::fmt::Debug for Reloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloader").finish_non_exhaustive()
    }
}

impl Reloader {
    pub(crate) fn new(
        edge: SharedEdge,
        tls: Option<Arc<Certificate>>,
        children: Arc<Mutex<Option<Children>>>,
    ) -> Reloader {
        Reloader { edge, tls, children }
    }

    /// Returns what the last successful reload brought; `None` before the first. A process that changes between leading
    /// and following starts the next part with it: a token that was removed must not come back.
    pub fn reloaded(&self) -> Option<Reload> {
        self.edge.reloaded.lock().clone()
    }

    /// Reloads; one reload runs at a time. Reads files and starts processes.
    pub async fn reload(&self, to: Reload) -> Result<Reloaded, ReloadError> {
        let mut children = self.children.lock().await;
        match (self.edge.tokens.is_open(), to.tokens.is_empty()) {
            (false, true) => return Err(ReloadError::Opens),
            (true, false) => return Err(ReloadError::Closes),
            _ => {}
        }
        let applied = to.clone();
        let certificate = match (&self.tls, &to.tls) {
            (Some(shown), Some(files)) => Some((shown, Certificate::read(files)?)),
            (None, None) => None,
            _ => return Err(ReloadError::Switches),
        };
        // The last step that can fail.
        let capabilities = match &mut *children {
            Some(children) => children.become_these(to.capabilities).await?,
            None => Changed::default(),
        };
        if let Some((shown, certificate)) = certificate {
            shown.replace(certificate);
        }
        warn_of_expired(&to.tokens, &self.edge.clock);
        let revoked = self.edge.tokens.replace(&to.tokens);
        self.edge.reloads.send_modify(|reloads| *reloads += 1);
        *self.edge.reloaded.lock() = Some(applied);
        Ok(Reloaded { tokens: to.tokens.len(), revoked, capabilities })
    }
}
