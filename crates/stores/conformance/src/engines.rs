//! The real engines that tests run on, as far as their variables are set, and URLs of fresh stores there.
//!
//! `cargo xtask engines` starts the engines and says which variables to set; `cargo xtask test` does both.

use std::env;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::Duration;

/// The bucket of all tests. SeaweedFS gives every bucket volumes of its own and has few of them, so tests have prefixes
/// and not buckets of their own.
const BUCKET: &str = "millrace-tests";
/// Object storage takes its credentials from the environment only.
const CREDENTIALS: &str = "AWS_ACCESS_KEY_ID";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestEngine {
    Postgres,
    /// The S3 protocol, served by SeaweedFS.
    Seaweed,
    /// The S3 protocol, served by moto: the oracle for conditions. moto looks and writes in two steps, so requests must
    /// not race there.
    Moto,
    Mongo,
}

impl TestEngine {
    pub fn name(self) -> &'static str {
        match self {
            TestEngine::Postgres => "PostgreSQL",
            TestEngine::Seaweed => "SeaweedFS",
            TestEngine::Moto => "moto",
            TestEngine::Mongo => "MongoDB",
        }
    }

    /// Returns the variable that holds the address.
    pub fn variable(self) -> &'static str {
        match self {
            TestEngine::Postgres => "TEST_POSTGRES",
            TestEngine::Seaweed => "TEST_S3_SEAWEED",
            TestEngine::Moto => "TEST_S3_MOTO",
            TestEngine::Mongo => "TEST_MONGO",
        }
    }

    pub fn is_object(self) -> bool {
        matches!(self, TestEngine::Seaweed | TestEngine::Moto)
    }

    /// Returns a store that nobody else uses: a schema, a prefix or a database that does not exist yet. Returns `None`,
    /// and says so, if the engine's variable is not set.
    pub fn fresh_store(self) -> Option<FreshStore> {
        let variable = self.variable();
        let Some(address) = env::var(variable).ok().filter(|address| !address.is_empty()) else {
            println!("skipped: {variable} is not set (cargo xtask test starts the engines)");
            return None;
        };
        if self.is_object() {
            let has_credentials = env::var_os(CREDENTIALS).is_some();
            assert!(
                has_credentials,
                "{variable} is set, {CREDENTIALS} is not (cargo xtask engines tells both)"
            );
            make_bucket(&address);
        }
        let name = format!("millrace_test_{:016x}", rand::random::<u64>());
        Some(FreshStore { engine: self, address, name })
    }
}

/// A store that does not exist before its URL is opened. Tests that make many of them remove them.
#[derive(Clone, Debug)]
pub struct FreshStore {
    pub engine: TestEngine,
    /// The value of the engine's variable.
    pub address: String,
    /// The schema, the prefix or the database.
    pub name: String,
}

impl FreshStore {
    pub fn url(&self) -> String {
        self.url_at(&self.host())
    }

    /// Returns the URL with another host and port, such as those of a proxy.
    pub fn url_at(&self, host: &str) -> String {
        let FreshStore { engine, address, name } = self;
        let address = address.replacen(&self.host(), host, 1);
        match engine {
            TestEngine::Postgres => {
                let sign = if address.contains('?') { '&' } else { '?' };
                format!("{address}{sign}schema={name}")
            }
            TestEngine::Seaweed | TestEngine::Moto => {
                let endpoint = address.trim_end_matches('/');
                // To a journal one folder up, the manifest is a part of a snapshot, which the port can delete.
                format!("s3://{BUCKET}/{name}/snapshot?endpoint={endpoint}&allow_http=true")
            }
            TestEngine::Mongo => {
                let options = address.split_once('?').map_or("", |(_, options)| options);
                // The engine of the tests is an embedded one, which syncs later than it says.
                format!("mongodb://{host}/{name}?{options}&allow_unsynced=true")
            }
        }
    }

    /// Returns host and port of the engine.
    pub fn host(&self) -> String {
        let rest = self.address.split_once("://").map_or(self.address.as_str(), |(_, rest)| rest);
        let authority = rest.split(['/', '?']).next().unwrap_or(rest);
        authority.rsplit('@').next().unwrap_or(authority).to_owned()
    }

    /// Returns the address that a proxy connects to.
    pub fn socket_addr(&self) -> SocketAddr {
        let host = self.host();
        let found = host.to_socket_addrs().ok().and_then(|mut found| found.next());
        found.unwrap_or_else(|| panic!("{host} of {} is no host and port", self.engine.variable()))
    }
}

/// Tries for a while: SeaweedFS takes connections seconds before it can do anything, and tells nobody when it can.
fn make_bucket(endpoint: &str) {
    let host = endpoint.trim_start_matches("http://").trim_end_matches('/');
    let mut status = String::new();
    for _ in 0..300 {
        status = put_bucket(host).unwrap_or_else(|error| format!("no answer: {error}"));
        if status.contains(" 200 ") || status.contains(" 409 ") {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("the bucket was not made: {status}");
}

/// Returns the first line of the answer.
fn put_bucket(host: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(host)?;
    let head = "content-length: 0\r\nconnection: close\r\n\r\n";
    stream.write_all(format!("PUT /{BUCKET} HTTP/1.1\r\nhost: {host}\r\n{head}").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_the_fresh_store_and_the_proxy() {
        let url = |engine, address: &str| {
            let store = FreshStore { engine, address: address.to_owned(), name: "n".to_owned() };
            (store.host(), store.url_at("127.0.0.1:9"))
        };
        assert_eq!(
            url(TestEngine::Postgres, "postgres://u:p@127.0.0.1:5432/db"),
            ("127.0.0.1:5432".to_owned(), "postgres://u:p@127.0.0.1:9/db?schema=n".to_owned())
        );
        assert_eq!(
            url(TestEngine::Seaweed, "http://localhost:80"),
            (
                "localhost:80".to_owned(),
                "s3://millrace-tests/n/snapshot?endpoint=http://127.0.0.1:9&allow_http=true".to_owned()
            )
        );
        assert_eq!(
            url(TestEngine::Mongo, "mongodb://127.0.0.1:1/?directConnection=true"),
            (
                "127.0.0.1:1".to_owned(),
                "mongodb://127.0.0.1:9/n?directConnection=true&allow_unsynced=true".to_owned()
            )
        );
    }
}
