//! A certificate for `localhost`, for a server, and connections of a client that trusts it.

use std::net::SocketAddr;
use std::sync::Arc;

use millrace_server::TlsFiles;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::PATIENCE;

pub(crate) struct TlsIdentity {
    cert: CertificateDer<'static>,
    folder: TempDir,
}

impl TlsIdentity {
    pub(crate) fn new() -> TlsIdentity {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let identity = TlsIdentity { cert: cert.der().clone(), folder };
        let files = identity.files();
        std::fs::write(files.cert, cert.pem()).unwrap();
        std::fs::write(files.key, signing_key.serialize_pem()).unwrap();
        identity
    }

    pub(crate) fn files(&self) -> TlsFiles {
        let path = |name: &str| self.folder.path().join(name);
        TlsFiles { cert: path("cert.pem"), key: path("key.pem"), client_ca: None }
    }

    /// A small `buffer` keeps the operating system from receiving in place of a peer that does not read.
    pub(crate) async fn connect(&self, addr: SocketAddr, buffer: Option<u32>) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.cert.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(bytes) = buffer {
            socket.set_recv_buffer_size(bytes).unwrap();
        }
        let socket = socket.connect(addr).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, socket);
        timeout(PATIENCE, connecting).await.unwrap().unwrap()
    }
}
