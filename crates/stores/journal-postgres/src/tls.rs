//! TLS as PostgreSQL's `sslmode` means it, with rustls.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

#[derive(Clone, Debug)]
pub(crate) struct TlsSettings {
    pub(crate) mode: SslMode,
    pub(crate) check: CertificateCheck,
    /// A PEM file of certificates to trust; without one, those that the operating system trusts.
    pub(crate) roots: Option<PathBuf>,
    /// PEM files: our own certificate and its key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
}

/// How much of the server's certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateCheck {
    /// Encrypted, but whoever sits between could be the other side.
    Nothing,
    /// Somebody who is trusted has signed the certificate, for whatever host.
    Issuer,
    IssuerAndName,
}

impl TlsSettings {
    pub(crate) fn driver_mode(&self) -> SslMode {
        self.mode
    }

    /// Reads the files anew, so that renewed certificates need no restart. The error is a sentence for people.
    pub(crate) fn connector(&self) -> Result<MakeRustlsConnect, String> {
        let provider = Arc::new(ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match self.check {
            _ if self.mode == SslMode::Disable => Arc::new(AnyCertificate(provider.clone())),
            CertificateCheck::Nothing => Arc::new(AnyCertificate(provider.clone())),
            CertificateCheck::Issuer => Arc::new(AnyName(self.verifier(&provider)?)),
            CertificateCheck::IssuerAndName => self.verifier(&provider)?,
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be used: {error}"))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match &self.client {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate, "sslcert")?;
                let read = PrivateKeyDer::from_pem_file(key);
                let key = read.map_err(|error| format!("sslkey: cannot use {}: {error}", key.display()))?;
                let config = config.with_client_auth_cert(chain, key);
                config.map_err(|error| format!("sslcert and sslkey cannot be used: {error}"))?
            }
        };
        Ok(MakeRustlsConnect::new(config))
    }

    fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, String> {
        let mut roots = RootCertStore::empty();
        let found = match &self.roots {
            Some(path) => certificates(path, "sslrootcert")?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        let (used, _) = roots.add_parsable_certificates(found);
        if used == 0 {
            return Err(
                "no certificate is trusted on this machine: name a file with sslrootcert=…".to_owned()
            );
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        verifier.map_err(|error| format!("the trusted certificates cannot be used: {error}"))
    }
}

fn certificates(path: &Path, parameter: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(format!("{parameter}: {} has no certificate", path.display())),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("{parameter}: cannot use {}: {error}", path.display())),
    }
}

/// Accepts every certificate whose holder has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Checks everything but the name.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        let verdict = self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verdict {
            // The name is the last thing that the verifier looks at.
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
