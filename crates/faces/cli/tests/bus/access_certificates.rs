//! Client certificates instead of tokens: whom a certificate stands for, which clients are refused, and reloading.

use std::path::Path;
use std::process::Output;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
};

use crate::access_tls::{certificates, run};
use crate::server::{Server, eventually};

type Authority = CertifiedIssuer<'static, KeyPair>;

const CERTIFICATES: &str = r#"
[[auth.certificates]]
name = "billing.clients.example"
agent = "billing"
scopes = ["publish", "subscribe"]

[[auth.certificates]]
name = "spiffe://example/ops"
agent = "ops"
scopes = ["admin"]
namespaces = ["*"]
"#;

const TOKENS: &str =
    "[[auth.tokens]]\ntoken = \"worker-secret\"\nagent = \"worker\"\nscopes = [\"publish\"]\n";

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

/// Writes `NAME.pem` and `NAME-key.pem` for a client with this name and a second name that is not configured.
fn client(folder: &Path, name: &str, san: SanType, signed_by: &Authority) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec!["other.example".to_owned()]).expect("parameters");
    params.subject_alt_names.push(san);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let cert = params.signed_by(&key, signed_by).expect("a certificate");
    std::fs::write(folder.join(format!("{name}.pem")), cert.pem()).expect("a file");
    std::fs::write(folder.join(format!("{name}-key.pem")), key.serialize_pem()).expect("a file");
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().expect("a name"))
}

/// Writes certificates of the clients `billing`, `ops` and `stranger` by the right authority, and of `forged` by
/// another one.
fn clients(folder: &Path) {
    certificates(folder);
    let (right, wrong) = (authority(), authority());
    std::fs::write(folder.join("clients.pem"), right.pem()).expect("a file");
    std::fs::write(folder.join("wrong-clients.pem"), wrong.pem()).expect("a file");
    client(folder, "billing", dns("billing.clients.example"), &right);
    client(folder, "ops", SanType::URI("spiffe://example/ops".try_into().expect("a URI")), &right);
    client(folder, "stranger", dns("stranger.example"), &right);
    client(folder, "forged", dns("billing.clients.example"), &wrong);
}

fn start(folder: &Path, config: &str) -> Server {
    let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    let (cert, key, clients) = (path("cert.pem"), path("key.pem"), path("clients.pem"));
    Server::with_config(config, &["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &clients])
}

/// Runs a command with the certificate of a client, or without one.
fn with(folder: &Path, server: &Server, client: Option<&str>, args: &[&str]) -> Output {
    let files = client.map(|name| (format!("{name}.pem"), format!("{name}-key.pem")));
    let flags = match &files {
        Some((cert, key)) => vec!["--client-cert", cert, "--client-key", key],
        None => Vec::new(),
    };
    let url = server.ws_url();
    let common = ["--url", &url, "--tls-ca", "ca.pem", "--reconnect-ms", "0"];
    run(folder, &[args, &flags, &common].concat())
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_certificate_stands_for_its_agent_with_its_scopes_beside_tokens() {
    let folder = tempfile::tempdir().expect("a folder");
    clients(folder.path());
    let server = start(folder.path(), &format!("{CERTIFICATES}{TOKENS}"));
    let ask = |client, args: &[&str]| with(folder.path(), &server, client, args);
    let published = ask(Some("billing"), &["pub", "t", "1"]);
    assert!(published.status.success(), "{}", stderr(&published));
    let read = ask(Some("billing"), &["sub", "t", "--group", "g", "--from", "earliest", "--count", "1"]);
    assert_eq!(String::from_utf8_lossy(&read.stdout), "1\n", "{}", stderr(&read));
    let made = ask(Some("billing"), &["topics", "create", "u"]);
    assert!(stderr(&made).contains("the token of agent billing has no scope admin"), "{}", stderr(&made));
    // The certificate is recognised by its URI, over HTTP, with an access list that names an agent.
    let made = ask(Some("ops"), &["topics", "create", "u", "--publish-acl", "ops"]);
    assert!(made.status.success(), "{}", stderr(&made));
    let refused = ask(Some("billing"), &["pub", "u", "1"]);
    assert!(stderr(&refused).contains("agent billing may not publish to topic u"), "{}", stderr(&refused));
    // A token still works without a certificate, and takes precedence when both are shown.
    let token = ["pub", "t", "2", "--token", "worker-secret"];
    for client in [None, Some("billing")] {
        let published = ask(client, &token);
        assert!(published.status.success(), "{}", stderr(&published));
    }
    let both =
        ask(Some("billing"), &["sub", "t", "--group", "h", "--count", "1", "--token", "worker-secret"]);
    assert!(stderr(&both).contains("agent worker has no scope subscribe"), "{}", stderr(&both));
    let wrong = ask(Some("billing"), &["pub", "t", "3", "--token", "wrong"]);
    assert!(!wrong.status.success(), "a wrong token is not made good by a certificate");
}

#[test]
fn whoever_is_not_named_or_not_signed_for_does_not_come_in() {
    let folder = tempfile::tempdir().expect("a folder");
    clients(folder.path());
    let server = start(folder.path(), &format!("{CERTIFICATES}{TOKENS}"));
    let listed = with(folder.path(), &server, Some("stranger"), &["topics", "list"]);
    assert!(stderr(&listed).contains("stands for nobody here"), "{}", stderr(&listed));
    let published = with(folder.path(), &server, Some("stranger"), &["pub", "t", "1"]);
    assert!(stderr(&published).contains("unauthorized"), "{}", stderr(&published));
    for args in [&["pub", "t", "1"][..], &["topics", "list"]] {
        let forged = with(folder.path(), &server, Some("forged"), args);
        assert_eq!(forged.status.code(), Some(3), "{}", stderr(&forged));
        let none = with(folder.path(), &server, None, args);
        assert!(stderr(&none).contains("--token"), "{}", stderr(&none));
    }
    // Without tokens a certificate is the only way to authenticate.
    let server = start(folder.path(), CERTIFICATES);
    for args in [&["pub", "t", "1"][..], &["topics", "list"]] {
        assert_eq!(with(folder.path(), &server, None, args).status.code(), Some(3));
        let billing = with(folder.path(), &server, Some("billing"), args);
        assert!(billing.status.success(), "{}", stderr(&billing));
    }
}

#[test]
fn sighup_reads_entries_and_authority_again_and_closes_what_is_revoked() {
    let folder = tempfile::tempdir().expect("a folder");
    clients(folder.path());
    let server = start(folder.path(), &format!("{CERTIFICATES}{TOKENS}"));
    let mut waiting = std::process::Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["sub", "t", "--group", "g", "--count", "1", "--url", &server.ws_url(), "--tls-ca", "ca.pem"])
        .args(["--client-cert", "billing.pem", "--client-key", "billing-key.pem", "--reconnect-ms", "0"])
        .current_dir(folder.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let groups = || with(folder.path(), &server, Some("ops"), &["topics", "groups", "t", "--json"]);
    eventually("it has subscribed", || String::from_utf8_lossy(&groups().stdout).contains("\"members\":1"));
    let file = server.folder().join("millrace.toml");
    let ops_only = CERTIFICATES.replace("billing.clients.example", "gone.example");
    std::fs::write(&file, format!("{ops_only}{TOKENS}")).expect("a file");
    server.signal("HUP");
    assert!(!waiting.wait().expect("it ends").success(), "its certificate stands for nobody any more");
    assert!(groups().status.success(), "others go on");
    // With another authority, certificates that it signed are accepted, and those of the old one are refused.
    std::fs::write(&file, format!("{CERTIFICATES}{TOKENS}")).expect("a file");
    std::fs::copy(folder.path().join("wrong-clients.pem"), folder.path().join("clients.pem"))
        .expect("a file");
    server.signal("HUP");
    eventually("the new authority counts", || {
        with(folder.path(), &server, Some("forged"), &["pub", "t", "1"]).status.success()
    });
    assert_eq!(with(folder.path(), &server, Some("billing"), &["pub", "t", "1"]).status.code(), Some(3));
}

#[test]
fn half_of_what_is_needed_is_refused_with_what_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    clients(folder.path());
    std::fs::write(folder.path().join("certificates.toml"), CERTIFICATES).expect("a file");
    std::fs::write(folder.path().join("tokens.toml"), TOKENS).expect("a file");
    std::fs::write(folder.path().join("nothing.pem"), "").expect("a file");
    let tls = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];
    let ca = ["--tls-client-ca", "clients.pem"];
    for (flags, code, why) in [
        ([&["--config", "certificates.toml"][..], &tls].concat(), 2, "without tls-client-ca"),
        ([&["--config", "tokens.toml"][..], &tls, &ca].concat(), 2, "without auth.certificates"),
        ([&["--config", "certificates.toml"][..], &ca].concat(), 2, "without tls-cert"),
        (
            [&["--config", "certificates.toml"][..], &tls, &["--tls-client-ca", "nothing.pem"]].concat(),
            1,
            "nothing.pem holds no certificate",
        ),
    ] {
        let args =
            [&["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--socket", "none"][..], &flags];
        let ran = run(folder.path(), &args.concat());
        assert_eq!(ran.status.code(), Some(code), "{flags:?}: {}", stderr(&ran));
        assert!(stderr(&ran).contains(why), "{flags:?}: {}", stderr(&ran));
    }
    let half = ["pub", "t", "1", "--url", "wss://127.0.0.1:1/", "--client-cert", "billing.pem"];
    let ran = run(folder.path(), &half);
    assert_eq!(ran.status.code(), Some(2), "{}", stderr(&ran));
    assert!(stderr(&ran).contains("without client-key"), "{}", stderr(&ran));
}
