//! Engines that a test starts itself, so that it may stop them, start them again, and put older data in their place.
//! Each listens on the same port as long as it lives, and ends with the test.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::cluster::wait_for;
use crate::engines::{accepts, free_addr, make_bucket, mongo_url, s3_url, stores_objects, unique};
use crate::postgres::postgres_bin;

/// PostgreSQL refuses to run as root.
const NOBODY: u32 = 65_534;
const PASSES_NOTHING: &str = "is not set, or has no such program (cargo xtask test starts the engines)";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Postgres,
    Seaweed,
    Mongo,
}

/// A stopped or running engine.
pub struct PrivateEngine {
    kind: Kind,
    pub addr: SocketAddr,
    /// More ports of the same engine.
    others: Vec<SocketAddr>,
    program: PathBuf,
    store: String,
    child: Option<Child>,
    folder: TempDir,
}

impl PrivateEngine {
    /// Makes a PostgreSQL without starting it; `None`, and says so, if this machine has none.
    pub fn postgres() -> Option<PrivateEngine> {
        let bin = postgres_bin()?;
        let engine = PrivateEngine::new(Kind::Postgres, bin.join("postgres"));
        engine.own(engine.folder.path());
        let made = engine
            .command(&bin.join("initdb"))
            .args(["-D", "data", "-A", "trust", "-U", "tests", "-E", "UTF8", "--locale=C", "-N"])
            .stdout(Stdio::null())
            .status();
        assert!(made.unwrap().success());
        Some(engine)
    }

    pub fn seaweed() -> Option<PrivateEngine> {
        Some(PrivateEngine::new(Kind::Seaweed, program_of("TEST_S3_SEAWEED_PROGRAM")?))
    }

    pub fn mongo() -> Option<PrivateEngine> {
        let engine = PrivateEngine::new(Kind::Mongo, program_of("TEST_MONGO_PROGRAM")?);
        std::fs::create_dir(engine.data()).unwrap();
        Some(engine)
    }

    fn new(kind: Kind, program: PathBuf) -> PrivateEngine {
        let addr = free_addr();
        let others = if kind == Kind::Seaweed { (0..7).map(|_| free_addr()).collect() } else { Vec::new() };
        let folder = tempfile::tempdir().unwrap();
        PrivateEngine { kind, addr, others, program, store: unique(), child: None, folder }
    }

    /// Returns the URL of a store on this engine, always the same; with the address of a proxy for the engine's own.
    pub fn url_at(&self, addr: SocketAddr) -> String {
        match self.kind {
            Kind::Postgres => format!("postgres://tests@{addr}/postgres?schema={}", self.store),
            Kind::Mongo => mongo_url(&format!("mongodb://{addr}/?directConnection=true"), &self.store),
            Kind::Seaweed => s3_url(&format!("http://{addr}"), &self.store),
        }
    }

    pub fn url(&self) -> String {
        self.url_at(self.addr)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Starts the engine and waits until it does its work.
    pub fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let (port, mut command) = (self.addr.port().to_string(), self.command(&self.program));
        match self.kind {
            Kind::Postgres => command.args(["-D", "data", "-p", &port]).args(POSTGRES_SETTINGS),
            Kind::Mongo => command.args(["data", &port]).env("TMPDIR", "."),
            Kind::Seaweed => {
                let ports: Vec<u16> = self.others.iter().map(SocketAddr::port).collect();
                command
                    .args(seaweed_args(self.addr.port(), &ports))
                    .envs([("TMPDIR", self.folder.path()), ("HOME", self.folder.path())])
            }
        };
        let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn();
        self.child = Some(child.unwrap());
        wait_for("the engine is ready", || self.is_ready().then_some(()));
    }

    fn is_ready(&self) -> bool {
        match self.kind {
            Kind::Postgres => {
                let port = self.addr.port().to_string();
                let mut look = Command::new(self.program.with_file_name("pg_isready"));
                look.args(["-h", "127.0.0.1", "-p", &port]).stdout(Stdio::null()).status().unwrap().success()
            }
            // The port is open long before anything can be stored.
            Kind::Seaweed => make_bucket(self.addr) && stores_objects(self.addr),
            Kind::Mongo => accepts(self.addr),
        }
    }

    /// Ends the engine as abruptly as its promise allows: PostgreSQL and SeaweedFS without saving anything, MongoDB in
    /// order, because the one that can be had here answers before it syncs.
    pub fn stop(&mut self) {
        let signal = match self.kind {
            Kind::Postgres => "QUIT",
            Kind::Seaweed => "KILL",
            Kind::Mongo => "TERM",
        };
        self.end(signal);
    }

    fn end(&mut self, signal: &str) {
        let Some(mut child) = self.child.take() else { return };
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        child.wait().unwrap();
    }

    /// Copies the data of a stopped engine: a backup.
    pub fn back_up(&self) {
        assert!(self.child.is_none());
        self.copy("data", "backup");
    }

    /// Puts the backup in the place of the data of a stopped engine.
    pub fn restore(&self) {
        assert!(self.child.is_none());
        std::fs::remove_dir_all(self.data()).unwrap();
        self.copy("backup", "data");
    }

    fn copy(&self, from: &str, to: &str) {
        let copied = Command::new("cp").args(["-a", from, to]).current_dir(self.folder.path()).status();
        assert!(copied.unwrap().success());
    }

    /// A program that ends with this thread. `setpriv` sees to that also if the tests are killed.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        match self.kind {
            Kind::Postgres if is_root() => {
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--pdeathsig=QUIT"])
            }
            Kind::Postgres => command.arg("--pdeathsig=QUIT"),
            Kind::Seaweed | Kind::Mongo => command.arg("--pdeathsig=KILL"),
        };
        // With a key in its environment SeaweedFS would ask for that key.
        for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
            command.env_remove(name);
        }
        command.arg(program).current_dir(self.folder.path());
        command
    }

    fn own(&self, path: &Path) {
        if is_root() {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
}

impl Drop for PrivateEngine {
    fn drop(&mut self) {
        self.end(if self.kind == Kind::Postgres { "QUIT" } else { "KILL" });
        // SeaweedFS leaves sockets behind, each named after a port.
        for addr in self.others.iter().chain([&self.addr]) {
            for name in ["s3", "filer", "s3-grpc", "master-grpc", "volume-grpc", "filer-grpc"] {
                let _ = std::fs::remove_file(format!("/tmp/seaweedfs-{name}-{}.sock", addr.port()));
            }
        }
    }
}

const POSTGRES_SETTINGS: [&str; 10] = [
    "-c",
    "listen_addresses=127.0.0.1",
    "-c",
    "unix_socket_directories=",
    "-c",
    "shared_buffers=16MB",
    "-c",
    "max_connections=60",
    "-c",
    "jit=off",
];

fn seaweed_args(s3: u16, others: &[u16]) -> Vec<String> {
    let names = [
        "s3.port.grpc",
        "master.port",
        "master.port.grpc",
        "volume.port",
        "volume.port.grpc",
        "filer.port",
        "filer.port.grpc",
    ];
    let mut args: Vec<String> = [
        "server",
        "-dir=.",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-s3",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    ]
    .map(str::to_owned)
    .to_vec();
    args.push(format!("-s3.port={s3}"));
    args.extend(names.iter().zip(others).map(|(name, port)| format!("-{name}={port}")));
    args.extend(
        [
            "-volume.max=100",
            "-master.volumeSizeLimitMB=256",
            "-master.telemetry=false",
            "-master.electionTimeout=1s",
        ]
        .map(str::to_owned),
    );
    args
}

pub fn program_of(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.exists());
    if path.is_none() {
        println!("skipped: {variable} {PASSES_NOTHING}");
    }
    path
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
