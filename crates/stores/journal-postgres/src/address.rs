//! The address of a journal: a URL of PostgreSQL with a few parameters of our own, which the driver never sees.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::passfile::PasswordFrom;
use crate::tls::{CertificateCheck, TlsSettings};

const SCHEMA_DEFAULT: &str = "millrace";
const TIMEOUT_MS_DEFAULT: u64 = 10_000;
const TIMEOUT_MS_MIN: u64 = 100;
const TIMEOUT_MS_MAX: u64 = 600_000;
/// PostgreSQL cuts longer names off.
const SCHEMA_BYTES_MAX: usize = 63;
/// Parameters that go to the driver as they are. Others are refused, because a misspelt one would be without effect.
const DRIVER_PARAMETERS: [&str; 12] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "options",
    "password",
    "port",
    "user",
];

/// `postgres://user:password@host:port/database?schema=millrace&sslmode=verify-full`, taken apart.
///
/// Several hosts, separated by commas, are tried in turn for one that accepts writes. Neither `Debug` nor `Display`
/// shows the password.
#[derive(Clone)]
pub struct PostgresAddress {
    /// The same database on each host of the URL.
    pub(crate) hosts: Vec<Config>,
    pub(crate) password: PasswordFrom,
    pub(crate) tls: TlsSettings,
    pub(crate) schema: String,
    pub(crate) timeout: Duration,
}

/// A URL that names no journal in PostgreSQL. No text contains a part of the URL that could be a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("the URL does not begin with postgres:// or postgresql://")]
    Scheme,
    #[error(
        "the URL has a second @, or one behind the host: within a user name or password write %40 for @, %2F for /, \
         %3F for ?, %23 for # and %25 for %"
    )]
    Encoding,
    #[error("the URL names no host: write postgres://user@host:5432/database")]
    NoHost,
    #[error("the URL names no user: write postgres://user@host:5432/database")]
    NoUser,
    #[error("the parameter {0} is not known: see docs/formats/journal-postgres.md for those that are")]
    UnknownParameter(String),
    #[error("the parameter {0} has no value: write {0}=…")]
    NoValue(String),
    #[error(
        "schema is {0:?}: a schema has 1 to 63 of the characters a-z 0-9 _, begins with a letter or _, and not with pg_"
    )]
    Schema(String),
    #[error("timeout_ms is {0:?}: {TIMEOUT_MS_MIN} to {TIMEOUT_MS_MAX} are allowed")]
    Timeout(String),
    #[error("sslmode is {0:?}: it is disable, prefer, require, verify-ca or verify-full")]
    TlsMode(String),
    #[error("sslrootcert is without effect with sslmode={0}: choose verify-full, verify-ca or require")]
    RootsUnused(&'static str),
    #[error("sslcert and sslkey belong together: one of them is missing")]
    HalfClientCertificate,
    #[error("the URL cannot be used: {0}")]
    Driver(String),
}

impl PostgresAddress {
    /// Takes a URL apart. The password may also come from the environment (`PGPASSWORD`, `PGPASSFILE`).
    ///
    /// # Errors
    ///
    /// If the URL is not one of PostgreSQL, or has a parameter that is unknown or wrong.
    pub fn parse(url: &str) -> Result<PostgresAddress, AddressError> {
        PostgresAddress::parse_in(url, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// Like [`PostgresAddress::parse`], with another environment.
    pub(crate) fn parse_in(
        url: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<PostgresAddress, AddressError> {
        let rest = ["postgres://", "postgresql://"].iter().find_map(|scheme| url.strip_prefix(scheme));
        let rest = rest.ok_or(AddressError::Scheme)?;
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // Also keeps every later text from showing a piece of a password that was not encoded.
        if rest.contains(['@', '#']) || authority.matches('@').count() > 1 {
            return Err(AddressError::Encoding);
        }
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let own = OwnParameters::split(query)?;
        let mut configs = Vec::new();
        for host in hosts.split(',') {
            let at = if authority.contains('@') { "@" } else { "" };
            configs.push(config(&format!("postgres://{user}{at}{host}{path}?{}", own.for_the_driver))?);
        }
        own.address(configs, environment)
    }

    /// Returns the name of the schema as SQL, in quotes. Only harmless characters are allowed in it.
    pub(crate) fn quoted_schema(&self) -> String {
        format!("\"{}\"", self.schema)
    }
}

/// The parameters of a URL, sorted by whom they are for.
#[derive(Default)]
struct OwnParameters {
    for_the_driver: String,
    schema: Option<String>,
    timeout_ms: Option<String>,
    tls_mode: Option<String>,
    roots: Option<String>,
    client_certificate: Option<String>,
    client_key: Option<String>,
    passfile: Option<String>,
}

impl OwnParameters {
    fn split(query: &str) -> Result<OwnParameters, AddressError> {
        let mut found = OwnParameters::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let slot = match name {
                "schema" => &mut found.schema,
                "timeout_ms" => &mut found.timeout_ms,
                "sslmode" => &mut found.tls_mode,
                "sslrootcert" => &mut found.roots,
                "sslcert" => &mut found.client_certificate,
                "sslkey" => &mut found.client_key,
                "passfile" => &mut found.passfile,
                name if DRIVER_PARAMETERS.contains(&name) => {
                    found.for_the_driver.push_str(pair);
                    found.for_the_driver.push('&');
                    continue;
                }
                _ => return Err(AddressError::UnknownParameter(name.to_owned())),
            };
            if value.is_empty() {
                return Err(AddressError::NoValue(name.to_owned()));
            }
            *slot = Some(percent_decoded(value).ok_or(AddressError::Encoding)?);
        }
        Ok(found)
    }

    fn address(
        self,
        mut hosts: Vec<Config>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<PostgresAddress, AddressError> {
        let in_url = hosts.first().and_then(Config::get_password).map(<[u8]>::to_vec);
        let passfile = self.passfile.clone().or_else(|| environment("PGPASSFILE"));
        let password = match (in_url, environment("PGPASSWORD"), passfile) {
            (Some(password), _, _) => PasswordFrom::Given(password),
            (None, Some(password), _) if self.passfile.is_none() => {
                PasswordFrom::Given(password.into_bytes())
            }
            (None, _, Some(file)) => PasswordFrom::File(PathBuf::from(file)),
            (None, _, None) => PasswordFrom::Nowhere,
        };
        let tls = self.tls(hosts.iter().all(is_local_socket))?;
        for host in &mut hosts {
            host.ssl_mode(tls.driver_mode());
        }
        let schema = self.schema.unwrap_or_else(|| SCHEMA_DEFAULT.to_owned());
        if !is_schema(&schema) {
            return Err(AddressError::Schema(schema));
        }
        let timeout_ms = match self.timeout_ms {
            None => TIMEOUT_MS_DEFAULT,
            Some(text) => match text.parse() {
                Ok(ms) if (TIMEOUT_MS_MIN..=TIMEOUT_MS_MAX).contains(&ms) => ms,
                _ => return Err(AddressError::Timeout(text)),
            },
        };
        Ok(PostgresAddress { hosts, password, tls, schema, timeout: Duration::from_millis(timeout_ms) })
    }

    /// The modes mean what they mean to PostgreSQL's own clients, see `docs/formats/journal-postgres.md`.
    fn tls(&self, is_local: bool) -> Result<TlsSettings, AddressError> {
        let roots = self.roots.as_ref().map(PathBuf::from);
        let (mode, check) = match self.tls_mode.as_deref() {
            Some("disable") => (SslMode::Disable, CertificateCheck::Nothing),
            None | Some("prefer") => (SslMode::Prefer, CertificateCheck::Nothing),
            Some("require") if roots.is_some() => (SslMode::Require, CertificateCheck::Issuer),
            Some("require") => (SslMode::Require, CertificateCheck::Nothing),
            Some("verify-ca") => (SslMode::Require, CertificateCheck::Issuer),
            Some("verify-full") => (SslMode::Require, CertificateCheck::IssuerAndName),
            Some(other) => return Err(AddressError::TlsMode(other.to_owned())),
        };
        match mode {
            SslMode::Disable if roots.is_some() => return Err(AddressError::RootsUnused("disable")),
            SslMode::Prefer if roots.is_some() => return Err(AddressError::RootsUnused("prefer")),
            _ => {}
        }
        let client = match (&self.client_certificate, &self.client_key) {
            (Some(certificate), Some(key)) => Some((PathBuf::from(certificate), PathBuf::from(key))),
            (None, None) => None,
            _ => return Err(AddressError::HalfClientCertificate),
        };
        // Sockets of the same machine have no TLS, and need none.
        let mode = if is_local { SslMode::Disable } else { mode };
        Ok(TlsSettings { mode, check, roots, client })
    }
}

fn config(url: &str) -> Result<Config, AddressError> {
    let config: Config = url.parse().map_err(|error| AddressError::Driver(texts_of(&error)))?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(AddressError::NoHost);
    }
    if config.get_user().is_none_or(str::is_empty) {
        return Err(AddressError::NoUser);
    }
    Ok(config)
}

fn texts_of(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{cause}")
}

fn is_local_socket(config: &Config) -> bool {
    let is_path = |host: &Host| !matches!(host, Host::Tcp(_));
    config.get_hostaddrs().is_empty() && config.get_hosts().iter().all(is_path)
}

fn is_schema(name: &str) -> bool {
    let fits = (1..=SCHEMA_BYTES_MAX).contains(&name.len()) && !name.starts_with("pg_");
    let letters = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    fits && letters && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = match byte {
            b'%' => {
                let digits = std::str::from_utf8(after.get(..2)?).ok()?;
                (u8::from_str_radix(digits, 16).ok()?, &after[2..])
            }
            byte => (byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        for (position, config) in self.hosts.iter().enumerate() {
            f.write_str(if position == 0 { "" } else { "," })?;
            match (config.get_hosts().first(), config.get_hostaddrs().first()) {
                (Some(Host::Tcp(name)), _) => f.write_str(name)?,
                #[cfg(unix)]
                (Some(Host::Unix(folder)), _) => write!(f, "{}", folder.display())?,
                (None, Some(address)) => write!(f, "{address}")?,
                (None, None) => {}
            }
            write!(f, ":{}", config.get_ports().first().unwrap_or(&5432))?;
        }
        let database = self.hosts.first().and_then(|config| config.get_dbname().or(config.get_user()));
        write!(f, "/{}?schema={}", database.unwrap_or_default(), self.schema)
    }
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresAddress({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Result<PostgresAddress, AddressError> {
        PostgresAddress::parse_in(url, |_| None)
    }

    fn check_refused(url: &str, expected: &str) {
        let text = parsed(url).unwrap_err().to_string();
        assert!(text.contains(expected), "{url}: {text}");
        assert!(!text.contains("secret"), "{url}: {text}");
    }

    #[test]
    fn our_own_parameters_never_reach_the_driver() {
        let url = "postgresql://ann:secret@db:6432/shop?schema=mill_2&timeout_ms=2500&application_name=x";
        let address = parsed(url).unwrap();
        assert_eq!((address.schema.as_str(), address.timeout), ("mill_2", Duration::from_millis(2500)));
        assert_eq!(address.hosts[0].get_application_name(), Some("x"));
        assert_eq!(address.to_string(), "postgres://db:6432/shop?schema=mill_2");
        let defaults = parsed("postgres://ann@db").unwrap();
        assert_eq!(defaults.to_string(), "postgres://db:5432/ann?schema=millrace");
        assert_eq!(defaults.timeout, Duration::from_secs(10));
    }

    #[test]
    fn wrong_urls_are_refused_with_the_remedy() {
        for (url, expected) in [
            ("http://db", "postgres://"),
            ("postgres://db/shop", "names no user"),
            ("postgres://ann@/shop", "names no host"),
            ("postgres://ann:sec@secret@db/shop", "%40"),
            ("postgres://ann:sec/secret@db/shop", "%2F"),
            ("postgres://ann:sec?secret=1@db/shop", "%3F"),
            ("postgres://ann:sec#secret@db/shop", "%23"),
            ("postgres://ann@db:port/shop", "`port`"),
            ("postgres://ann@db/shop?shema=x", "shema is not known"),
            ("postgres://ann@db/shop?schema=", "schema has no value"),
            ("postgres://ann@db/shop?schema=Mill", "a-z 0-9 _"),
            ("postgres://ann@db/shop?schema=pg_x", "not with pg_"),
            ("postgres://ann@db/shop?schema=a%22b", "a-z 0-9 _"),
            ("postgres://ann@db/shop?timeout_ms=soon", "100 to 600000"),
            ("postgres://ann@db/shop?timeout_ms=1", "100 to 600000"),
            ("postgres://ann@db/shop?sslmode=allow", "verify-full"),
            ("postgres://ann@db/shop?sslrootcert=/x&sslmode=disable", "without effect"),
            ("postgres://ann@db/shop?sslcert=/x", "belong together"),
        ] {
            check_refused(url, expected);
        }
    }

    #[test]
    fn the_password_comes_from_the_url_or_the_environment_or_a_file_and_is_never_shown() {
        let given = |url: &str, pairs: &[(&str, &str)]| {
            let look =
                |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            PostgresAddress::parse_in(url, look).unwrap()
        };
        let address = given("postgres://ann:secret@db", &[("PGPASSWORD", "other")]);
        assert_eq!(address.password, PasswordFrom::Given(b"secret".to_vec()));
        assert!(!format!("{address:?} {address}").contains("secret"));
        let address = given("postgres://ann@db", &[("PGPASSWORD", "secret"), ("PGPASSFILE", "/f")]);
        assert_eq!(address.password, PasswordFrom::Given(b"secret".to_vec()));
        assert!(!format!("{address:?} {address} {:?}", address.password).contains("secret"));
        let address = given("postgres://ann@db?passfile=/etc/pass%20word", &[("PGPASSWORD", "other")]);
        assert_eq!(address.password, PasswordFrom::File("/etc/pass word".into()));
        assert_eq!(
            given("postgres://ann@db", &[("PGPASSFILE", "/f")]).password,
            PasswordFrom::File("/f".into())
        );
        assert_eq!(given("postgres://ann@db", &[]).password, PasswordFrom::Nowhere);
    }

    #[test]
    fn every_host_of_a_list_has_the_same_database() {
        let address = parsed("postgres://ann@a:1,b,[::1]:3/shop?schema=s").unwrap();
        assert_eq!(address.to_string(), "postgres://a:1,b:5432,::1:3/shop?schema=s");
        assert!(address.hosts.iter().all(|config| config.get_dbname() == Some("shop")));
    }

    #[test]
    fn a_socket_of_this_machine_has_no_tls() {
        let address = parsed("postgres://ann@%2Frun%2Fpostgresql/shop?sslmode=verify-full").unwrap();
        assert_eq!(address.hosts[0].get_ssl_mode(), SslMode::Disable);
        let address = parsed("postgres:///shop?host=/run/postgresql&user=ann").unwrap();
        assert_eq!(address.hosts[0].get_ssl_mode(), SslMode::Disable);
    }

    #[test]
    fn tls_modes_mean_what_they_mean_to_libpq() {
        let mode = |parameters: &str| {
            let address = parsed(&format!("postgres://ann@db/shop?{parameters}")).unwrap();
            (address.hosts[0].get_ssl_mode(), address.tls.check)
        };
        assert_eq!(mode(""), (SslMode::Prefer, CertificateCheck::Nothing));
        assert_eq!(mode("sslmode=disable"), (SslMode::Disable, CertificateCheck::Nothing));
        assert_eq!(mode("sslmode=require"), (SslMode::Require, CertificateCheck::Nothing));
        assert_eq!(mode("sslmode=require&sslrootcert=/ca"), (SslMode::Require, CertificateCheck::Issuer));
        assert_eq!(mode("sslmode=verify-ca"), (SslMode::Require, CertificateCheck::Issuer));
        assert_eq!(mode("sslmode=verify-full"), (SslMode::Require, CertificateCheck::IssuerAndName));
    }
}
