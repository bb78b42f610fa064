//! TLS with certificates made for the test: with the right authority, the wrong one, and none.

use std::path::Path;
use std::process::{Command, Output};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::access::TOKENS;
use crate::server::Server;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

/// Writes `cert.pem`, `key.pem` for 127.0.0.1 and the authorities `ca.pem`, `other.pem`.
pub fn certificates(folder: &Path) {
    let ca = authority();
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    let cert = params.signed_by(&key, &ca).expect("a certificate");
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).expect("a file");
    write("cert.pem", cert.pem());
    write("key.pem", key.serialize_pem());
    write("ca.pem", ca.pem());
    write("other.pem", authority().pem());
}

pub fn run(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.args(args).current_dir(folder).output().expect("the binary runs")
}

pub fn start(folder: &Path) -> Server {
    let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    Server::with_config(TOKENS, &["--tls-cert", &cert, "--tls-key", &key])
}

#[test]
fn clients_that_trust_the_authority_come_in_by_wss_and_https() {
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path());
    let server = start(folder.path());
    assert!(server.ws_url().starts_with("wss://") && server.http_url().starts_with("https://"));
    let url = server.ws_url();
    let client = ["--url", &url, "--token", "alice-secret", "--tls-ca", "ca.pem"];
    let with_client = |args: &[&str]| run(folder.path(), &[args, &client].concat());
    let published = with_client(&["pub", "t", "{\"a\":1}"]);
    assert!(published.status.success(), "{published:?}");
    let read = with_client(&["sub", "t", "--group", "g", "--from", "earliest", "--count", "1"]);
    assert_eq!(String::from_utf8_lossy(&read.stdout), "{\"a\":1}\n", "{read:?}");
    let listed = with_client(&["topics", "list", "--json"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("\"topic\":\"t\""), "{listed:?}");
}

#[test]
fn clients_that_trust_another_authority_or_speak_plain_text_do_not() {
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path());
    let mut server = start(folder.path());
    let (url, plain) = (server.ws_url(), server.ws_url().replace("wss://", "ws://"));
    let verbs: [&[&str]; 2] = [&["pub", "t", "1"], &["topics", "list"]];
    for verb in verbs {
        for more in [
            &["--url", &url, "--tls-ca", "other.pem"][..],
            &["--url", &url],
            &["--url", &plain, "--tls-ca", "ca.pem"],
        ] {
            let ran = run(folder.path(), &[verb, more, &["--token", "alice-secret"]].concat());
            assert_eq!(ran.status.code(), Some(3), "{more:?}: {ran:?}");
        }
        for file in ["missing.pem", "key.pem"] {
            let ran = run(folder.path(), &[verb, &["--url", &url, "--tls-ca", file]].concat());
            assert_eq!(ran.status.code(), Some(2), "{file}: {ran:?}");
        }
    }
    assert_eq!(server.terminate(), Some(0), "failed handshakes leave nothing behind");
}

#[test]
fn a_server_does_not_start_without_a_usable_pair() {
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path());
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--socket", "none"];
    for (flags, code) in [
        (&["--tls-cert", "cert.pem"][..], 2),
        (&["--tls-key", "key.pem"], 2),
        (&["--tls-cert", "missing.pem", "--tls-key", "key.pem"], 1),
        (&["--tls-cert", "key.pem", "--tls-key", "cert.pem"], 1),
        (&["--tls-cert", "other.pem", "--tls-key", "key.pem"], 1),
    ] {
        let ran = run(folder.path(), &[&serve[..], flags].concat());
        assert_eq!(ran.status.code(), Some(code), "{flags:?}: {ran:?}");
        assert!(String::from_utf8_lossy(&ran.stderr).contains("tls"), "{ran:?}");
    }
}

#[test]
fn the_usual_mistakes_are_said_in_plain_words() {
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path());
    let said = |server: &str, ca: &str, words: &str| {
        for verb in [&["pub", "t", "1"][..], &["topics", "list"]] {
            let client = ["--url", server, "--tls-ca", ca, "--token", "alice-secret"];
            let ran = run(folder.path(), &[verb, &client].concat());
            assert_eq!(ran.status.code(), Some(3), "{ran:?}");
            assert!(String::from_utf8_lossy(&ran.stderr).contains(words), "{verb:?}: {ran:?}");
        }
    };
    let server = start(folder.path());
    said(&server.ws_url().replace("wss://", "ws://"), "ca.pem", "write wss:// or https://");
    let plain = Server::start();
    said(&plain.ws_url().replace("ws://", "wss://"), "ca.pem", "write ws:// or http://");
    // `openssl req -x509` makes such a file: one certificate that is its own authority.
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let cert = params.self_signed(&key).expect("a certificate");
    std::fs::write(folder.path().join("cert.pem"), cert.pem()).expect("a file");
    std::fs::write(folder.path().join("key.pem"), key.serialize_pem()).expect("a file");
    said(&start(folder.path()).ws_url(), "cert.pem", "make a certificate for the server with CA:FALSE");
}
