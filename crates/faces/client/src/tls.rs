//! TLS: trusted authorities, and the client's own certificate.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::Connector;

use crate::error::ClientError;
use crate::options::{ClientCertificate, ClientOptions};

/// Returns the cryptography that this client uses, for other code in the same program that wants to use the same.
pub fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Returns the trusted authorities in a PEM file, or those of the system.
pub fn authorities(file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    let Some(file) = file else {
        return Ok(rustls_native_certs::load_native_certs().certs);
    };
    let bad = |reason: String| ClientError::BadAuthority { path: file.display().to_string(), reason };
    let text = std::fs::read(file).map_err(|error| bad(error.to_string()))?;
    let certs: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certs = certs.map_err(|error| bad(error.to_string()))?;
    if certs.is_empty() {
        return Err(bad("it holds no certificate in PEM form".into()));
    }
    Ok(certs)
}

/// Common mistakes with TLS: the text in the library's error, and what to do about it.
const PLAIN_WORDS: [(&str, &str); 5] = [
    (
        "CertificateRequired",
        "the server asks for a client certificate and has no tokens: give one (--client-cert and --client-key)",
    ),
    (
        "UnknownCA",
        "the server does not know the authority that signed the client certificate: sign it with one of --tls-client-ca",
    ),
    (
        "CaUsedAsEndEntity",
        "the server's certificate is one of an authority (CA:TRUE), which may vouch for servers but not be one: make a \
         certificate for the server with CA:FALSE and sign it with this one",
    ),
    ("invalid HTTP version", "the answer is not HTTP: if the server has TLS, write wss:// or https://"),
    ("InvalidContentType", "the answer is not TLS: if the server has none, write ws:// or http://"),
];

/// Adds to the reason why a server cannot be reached what to do about it, if that is known. The library's own text
/// stays, for looking it up.
pub fn in_plain_words(reason: String) -> String {
    match PLAIN_WORDS.iter().find(|(said, _)| reason.contains(said)) {
        Some((_, plain)) => format!("{plain} ({reason})"),
        None => reason,
    }
}

/// A client certificate with its chain, and its key.
pub type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Reads a client certificate and its key.
pub fn client_identity(files: &ClientCertificate) -> Result<Identity, ClientError> {
    let bad = |path: &Path, reason: String| ClientError::BadCertificate {
        path: path.display().to_string(),
        reason,
    };
    let read = |path: &Path| std::fs::read(path).map_err(|error| bad(path, error.to_string()));
    let (cert, key) = (files.cert.as_path(), files.key.as_path());
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(cert)?).collect();
    let chain = chain.map_err(|error| bad(cert, error.to_string()))?;
    if chain.is_empty() {
        return Err(bad(cert, "it holds no certificate in PEM form".into()));
    }
    let found = PrivateKeyDer::from_pem_slice(&read(key)?);
    let found = found.map_err(|error| bad(key, format!("it holds no private key in PEM form ({error})")))?;
    Ok((chain, found))
}

pub(crate) fn connector(options: &ClientOptions) -> Result<Connector, ClientError> {
    let file = options.tls_ca.as_deref();
    let mut roots = RootCertStore::empty();
    // The system's store often contains certificates that cannot be parsed; in a file of the user every certificate
    // must be usable.
    let (added, ignored) = roots.add_parsable_certificates(authorities(file)?);
    if added == 0 || (file.is_some() && ignored > 0) {
        let path = file.map_or_else(|| "the system's store".into(), |file| file.display().to_string());
        let reason = "no certificate in it can be used".into();
        return Err(ClientError::BadAuthority { path, reason });
    }
    let config = ClientConfig::builder_with_provider(crypto_provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError::BadAuthority { path: "tls".into(), reason: error.to_string() })?
        .with_root_certificates(roots);
    let config = match &options.client_certificate {
        None => config.with_no_client_auth(),
        Some(files) => {
            let (chain, key) = client_identity(files)?;
            let path = files.cert.display().to_string();
            let unusable =
                |error: rustls::Error| ClientError::BadCertificate { path, reason: error.to_string() };
            config.with_client_auth_cert(chain, key).map_err(unusable)?
        }
    };
    Ok(Connector::Rustls(Arc::new(config)))
}
