//! The engines that the tests run on: a folder always, the others where `cargo xtask test` has started them.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};

use crate::http::request;

/// The bucket of all tests. SeaweedFS gives every bucket volumes of its own and has few of them, so a test has a prefix.
pub const BUCKET: &str = "millrace-processes";

/// An engine that somebody else has started, and a place for a fresh store on it.
pub struct TestEngine {
    pub name: &'static str,
    pub addr: SocketAddr,
    /// Host and port are `HOST` in it.
    url: String,
}

impl TestEngine {
    pub fn postgres() -> Option<TestEngine> {
        let base = variable("TEST_POSTGRES")?;
        let join = if base.contains('?') { '&' } else { '?' };
        TestEngine::new("PostgreSQL", &base, |base| format!("{base}{join}schema={}", unique()))
    }

    /// The MongoDB that can be had here answers before it syncs: its process must not be killed, and then it will do.
    pub fn mongo() -> Option<TestEngine> {
        TestEngine::new("MongoDB", &variable("TEST_MONGO")?, |base| mongo_url(base, &unique()))
    }

    pub fn seaweed() -> Option<TestEngine> {
        let base = variable("TEST_S3_SEAWEED")?;
        let engine = TestEngine::new("SeaweedFS", &base, |base| s3_url(base, &unique()))?;
        assert!(make_bucket(engine.addr));
        Some(engine)
    }

    fn new(name: &'static str, base: &str, url: impl Fn(&str) -> String) -> Option<TestEngine> {
        let host = host_of(base);
        let addr = host.to_socket_addrs().unwrap().next().unwrap();
        Some(TestEngine { name, addr, url: url(&base.replace(&host, "HOST")) })
    }

    /// Returns the URL of the store, with another address for the engine: that of a proxy.
    pub fn url_at(&self, addr: SocketAddr) -> String {
        self.url.replace("HOST", &addr.to_string())
    }

    pub fn url(&self) -> String {
        self.url_at(self.addr)
    }
}

/// Calls `test` with the URL of a fresh store in a folder and on PostgreSQL.
pub fn each(test: impl Fn(&str)) {
    let folder = tempfile::tempdir().unwrap();
    test(&folder_url(folder.path()));
    if let Some(engine) = TestEngine::postgres() {
        println!("on {}", engine.name);
        test(&engine.url());
    }
}

pub fn folder_url(folder: &std::path::Path) -> String {
    format!("dir:///{}", folder.join("store").display())
}

/// Returns the URL of a store at a MongoDB whose address names no database.
pub fn mongo_url(base: &str, database: &str) -> String {
    let (hosts, options) = base.split_once("/?").unwrap_or((base.trim_end_matches('/'), ""));
    let join = if options.is_empty() { "" } else { "&" };
    format!("{hosts}/{database}?{options}{join}allow_unsynced=true")
}

/// Returns the URL of a store at an S3 server.
pub fn s3_url(base: &str, prefix: &str) -> String {
    format!("s3://{BUCKET}/{prefix}?endpoint={}&allow_http=true", base.trim_end_matches('/'))
}

/// Returns whether the bucket is there.
pub fn make_bucket(addr: SocketAddr) -> bool {
    // 409: another test has made it.
    matches!(request(addr, "PUT", &format!("/{BUCKET}"), None, ""), Some((200 | 409, _, _)))
}

pub fn stores_objects(addr: SocketAddr) -> bool {
    matches!(request(addr, "PUT", &format!("/{BUCKET}/ready"), None, "x"), Some((200, _, _)))
}

/// Returns a name for a schema, a database or a prefix.
pub fn unique() -> String {
    format!("t{:x}", rand::random::<u64>())
}

fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty());
    if value.is_none() {
        println!("skipped: {name} is not set (cargo xtask test starts the engines)");
    }
    value
}

/// Returns host and port of a URL.
fn host_of(url: &str) -> String {
    let rest = url.split_once("://").unwrap().1;
    let authority = rest.split(['/', '?']).next().unwrap();
    authority.rsplit('@').next().unwrap().to_owned()
}

pub fn accepts(addr: SocketAddr) -> bool {
    TcpStream::connect(addr).is_ok()
}

/// Returns an address of the loopback that nobody uses, below the ports that the system gives to clients: so it stays free
/// while its owner is restarted.
pub fn free_addr() -> SocketAddr {
    loop {
        let addr = SocketAddr::from(([127, 0, 0, 1], rand::random_range(15_000..32_000)));
        if std::net::TcpListener::bind(addr).is_ok() {
            return addr;
        }
    }
}
