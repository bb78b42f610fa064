//! Passwords and TLS against a server that insists on them.

#![allow(clippy::unwrap_used)]

mod support;

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use millrace_journal::{Journal, Placed};
use millrace_journal_postgres::PostgresJournal;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use support::server::Server;
use support::*;

/// A server with TLS for `localhost`, a certificate for clients, and the role `ann` with a password.
struct Guarded {
    server: Server,
    schema: Schema,
}

impl Guarded {
    fn start() -> Option<Guarded> {
        let server = Server::start("password_encryption = 'scram-sha-256'")?;
        let folder = server.folder.path().to_owned();
        let issuer = issuer("Millrace test CA");
        std::fs::write(folder.join("ca.pem"), issuer.pem()).unwrap();
        std::fs::write(folder.join("other-ca.pem"), self::issuer("Another CA").pem()).unwrap();
        sign(&folder, "server", &["localhost"], &issuer);
        sign(&folder, "cert_user", &[], &issuer);
        let schema = Schema::on(&server.url());
        schema.query("CREATE ROLE ann LOGIN PASSWORD 'hunter2'");
        schema.query("CREATE ROLE cert_user LOGIN");
        schema.query(&format!("CREATE SCHEMA {}", schema.name));
        schema.query("GRANT ALL ON SCHEMA {s} TO ann; GRANT ann TO cert_user");
        let mut access = String::new();
        for line in ["hostssl all cert_user 127.0.0.1/32 cert", "host all ann 127.0.0.1/32 scram-sha-256"] {
            writeln!(access, "{line}\nhost all bench 127.0.0.1/32 trust").unwrap();
        }
        std::fs::write(Path::new(&server.data()).join("pg_hba.conf"), access).unwrap();
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        server.configure(&format!(
            "ssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'\nssl_ca_file = '{}'",
            path("server.pem"),
            path("server.key"),
            path("ca.pem")
        ));
        server.run_down();
        server.run_up();
        Some(Guarded { server, schema })
    }

    fn file(&self, name: &str) -> String {
        self.server.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn journal(&self, user: &str, host: &str, parameters: &str) -> PostgresJournal {
        let (port, schema) = (self.server.port, &self.schema.name);
        let url =
            format!("postgres://{user}@{host}:{port}/postgres?schema={schema}&timeout_ms=20000&{parameters}");
        PostgresJournal::open(&url).unwrap()
    }

    fn is_encrypted(&self) -> bool {
        let sql = "SELECT bool_or(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                   WHERE application_name LIKE 'millrace %'";
        self.schema.query(sql) == ["t"]
    }
}

fn issuer(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn sign(folder: &Path, name: &str, hosts: &[&str], issuer: &CertifiedIssuer<'static, KeyPair>) {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
    let path = folder.join(format!("{name}.key"));
    std::fs::write(&path, key.serialize_pem()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    // PostgreSQL wants to own its key.
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(folder).unwrap());
    std::os::unix::fs::chown(&path, Some(owner), Some(owner)).unwrap();
}

#[test]
fn passwords_and_tls_are_what_the_url_says() {
    let Some(guarded) = Guarded::start() else { return };
    let ca = guarded.file("ca.pem");
    let other_ca = guarded.file("other-ca.pem");

    // Passwords.
    let text = assert_refused(guarded.journal("ann:hunter3", "127.0.0.1", "").check(), "28P01");
    assert!(text.contains("PGPASSWORD") && !text.contains("hunter"), "{text}");
    assert_refused(guarded.journal("ann", "127.0.0.1", "").check(), "password missing");
    let passfile = guarded.file("passfile");
    std::fs::write(&passfile, "*:*:postgres:ann:hunter2\n").unwrap();
    std::fs::set_permissions(&passfile, std::fs::Permissions::from_mode(0o600)).unwrap();
    let journal = guarded.journal("ann", "127.0.0.1", &format!("passfile={passfile}"));
    journal.check().unwrap();
    assert_eq!(place(&journal, 1).unwrap(), Placed::Yes);
    assert!(guarded.is_encrypted(), "prefer uses TLS where there is some");
    drop(journal);

    // Modes of TLS, as libpq has them.
    let check = |host: &str, parameters: &str| guarded.journal("ann:hunter2", host, parameters).check();
    check("127.0.0.1", "sslmode=disable").unwrap();
    check("127.0.0.1", "sslmode=require").unwrap();
    check("localhost", &format!("sslmode=verify-full&sslrootcert={ca}")).unwrap();
    check("127.0.0.1", &format!("sslmode=verify-ca&sslrootcert={ca}")).unwrap();
    check("127.0.0.1", &format!("sslmode=require&sslrootcert={ca}")).unwrap();
    for (host, parameters, expected) in [
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={ca}"), "certificate not valid for name"),
        ("localhost", format!("sslmode=verify-full&sslrootcert={other_ca}"), "invalid peer certificate"),
        ("localhost", format!("sslmode=verify-ca&sslrootcert={other_ca}"), "invalid peer certificate"),
        ("localhost", format!("sslmode=require&sslrootcert={other_ca}"), "invalid peer certificate"),
        ("localhost", "sslmode=verify-full".to_owned(), "certificate"),
        ("localhost", "sslmode=verify-full&sslrootcert=/no/such/file".to_owned(), "sslrootcert: cannot use"),
        (
            "localhost",
            format!("sslmode=verify-full&sslrootcert={}", guarded.file("log")),
            "has no certificate",
        ),
    ] {
        let text = assert_refused(check(host, &parameters), expected);
        assert!(!text.contains("hunter2"), "{text}");
    }

    // A certificate instead of a password.
    let (certificate, key) = (guarded.file("cert_user.pem"), guarded.file("cert_user.key"));
    let client = format!("sslmode=verify-full&sslrootcert={ca}&sslcert={certificate}&sslkey={key}");
    let journal = guarded.journal("cert_user", "localhost", &client);
    journal.check().unwrap();
    assert_eq!(place(&journal, 2).unwrap(), Placed::Yes);
    let without = format!("sslmode=verify-full&sslrootcert={ca}");
    assert_refused(guarded.journal("cert_user", "localhost", &without).check(), "28000");
}
