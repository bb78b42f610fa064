//! TLS: the server's certificate and the authorities of client certificates, read at the start and on a reload.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::settings::{ClientAuthority, TlsFiles};

/// The only protocol spoken inside TLS.
const ALPN: &[u8] = b"http/1.1";

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{path} cannot be read: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path} holds no {what} in PEM form")]
    Nothing { path: PathBuf, what: &'static str },
    #[error("{path} is not PEM: {reason}")]
    NotPem { path: PathBuf, reason: String },
    #[error("{path} cannot be used as the authority of client certificates: {reason}")]
    Authority { path: PathBuf, reason: String },
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// The TLS configuration of new connections. Established connections keep the one they began with.
pub(crate) struct Certificate(RwLock<TlsAcceptor>);

impl Certificate {
    pub(crate) fn read(files: &TlsFiles) -> Result<Certificate, TlsError> {
        Ok(Certificate(RwLock::new(acceptor(files)?)))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.0.read().clone()
    }

    pub(crate) fn replace(&self, by: Certificate) {
        let by = by.0.into_inner();
        *self.0.write() = by;
    }
}

fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    let certs = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|error| bad_pem(&files.key, "private key", &error))?;
    let provider = Arc::new(ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let config = match &files.client_ca {
        None => config.with_no_client_auth(),
        Some(authority) => config.with_client_cert_verifier(client_verifier(authority, provider)?),
    };
    let mut config = config.with_single_cert(certs, key)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Checks that a client's certificate was signed by one of the authorities, is valid now and is meant for clients.
fn client_verifier(
    authority: &ClientAuthority,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let path = &authority.file;
    let mut roots = RootCertStore::empty();
    for cert in certificates(path)? {
        let bad =
            |error: rustls::Error| TlsError::Authority { path: path.clone(), reason: error.to_string() };
        roots.add(cert).map_err(bad)?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
    let builder = if authority.optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|error| TlsError::Authority { path: path.clone(), reason: error.to_string() })
}

/// Reads the certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certs = CertificateDer::pem_slice_iter(&read(path)?).collect::<Result<Vec<_>, _>>();
    let certs = certs.map_err(|error| bad_pem(path, "certificate", &error))?;
    if certs.is_empty() {
        return Err(TlsError::Nothing { path: path.to_owned(), what: "certificate" });
    }
    Ok(certs)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })
}

fn bad_pem(path: &Path, what: &'static str, error: &pem::Error) -> TlsError {
    match error {
        pem::Error::NoItemsFound => TlsError::Nothing { path: path.to_owned(), what },
        error => TlsError::NotPem { path: path.to_owned(), reason: error.to_string() },
    }
}
