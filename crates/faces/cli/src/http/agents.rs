//! The HTTP agents: one for servers with TLS and one for servers without, each made when it is needed first.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use millrace_client::{Endpoint, authorities, client_identity, crypto_provider};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::commands::client_certificate;
use crate::failure::Failure;
use crate::settings::Config;

/// The longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The longest wait for a connection, after which the next server is tried.
const CONNECT_MAX: Duration = Duration::from_secs(10);

pub(super) struct Agents {
    config: Config,
    plain: OnceLock<Agent>,
    tls: OnceLock<Agent>,
}

impl Agents {
    pub(super) fn new(config: &Config) -> Agents {
        Agents { config: config.clone(), plain: OnceLock::new(), tls: OnceLock::new() }
    }

    /// Returns the agent for a server. Fails if the files of TLS cannot be used.
    pub(super) fn agent(&self, server: &Endpoint) -> Result<&Agent, Failure> {
        let cell = if server.tls { &self.tls } else { &self.plain };
        if let Some(agent) = cell.get() {
            return Ok(agent);
        }
        let agent = Agent::config_builder()
            .tls_config(tls_config(server.tls, ServerIdentity::Checked, &self.config)?)
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_MAX))
            .timeout_global(Some(ANSWER_MAX))
            .proxy(None)
            .build()
            .new_agent();
        Ok(cell.get_or_init(|| agent))
    }
}

/// Whether a server must prove by its certificate that it is the one that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerIdentity {
    Checked,
    /// Only for requests that show no secret to a server of this machine.
    Unchecked,
}

/// Returns a TLS configuration that trusts the same authorities as the WebSocket client.
pub(super) fn tls_config(
    has_tls: bool,
    identity: ServerIdentity,
    config: &Config,
) -> Result<TlsConfig, Failure> {
    let file = (!config.tls_ca.is_empty()).then(|| Path::new(&config.tls_ca));
    let is_checked = identity == ServerIdentity::Checked;
    // Reading the system's certificates takes a while, and is useless without TLS.
    let certs = if has_tls && is_checked { authorities(file)? } else { Vec::new() };
    let certs = certs.iter().map(|cert| Certificate::from_der(cert).to_owned());
    let shown = match client_certificate(config)?.filter(|_| has_tls) {
        None => None,
        Some(files) => {
            // Checked here, so that the error names the wrong file.
            let (chain, _) = client_identity(&files)?;
            let chain: Vec<_> = chain.iter().map(|cert| Certificate::from_der(cert).to_owned()).collect();
            let unusable = |error: &dyn std::fmt::Display| {
                Failure::Failed(format!("{} cannot be used: {error}", files.key.display()))
            };
            let key = std::fs::read(&files.key).map_err(|error| unusable(&error))?;
            let key = PrivateKey::from_pem(&key).map_err(|error| unusable(&error))?;
            Some(ClientCert::new_with_certs(&chain, key))
        }
    };
    Ok(TlsConfig::builder()
        .client_cert(shown)
        .disable_verification(!is_checked)
        .root_certs(RootCerts::new_with_certs(&certs.collect::<Vec<_>>()))
        .unversioned_rustls_crypto_provider(crypto_provider())
        .build())
}
