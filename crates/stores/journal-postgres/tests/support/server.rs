//! PostgreSQL servers with settings of their own, started from the binaries of this machine.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Stopped and removed at the end.
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) folder: TempDir,
    binaries: PathBuf,
}

impl Server {
    /// Starts a server with lines of postgresql.conf, or returns nothing if this machine has no PostgreSQL.
    pub(crate) fn start(settings: &str) -> Option<Server> {
        let server = Server::make()?;
        server.run(
            "initdb",
            &["-D", &server.data(), "-A", "trust", "-U", "bench", "-E", "UTF8", "--locale=C", "-N"],
        );
        server.configure(settings);
        server.run_up();
        Some(server)
    }

    /// Starts a standby of another server.
    pub(crate) fn standby_of(primary: &Server, name: &str) -> Server {
        let server = Server::make().unwrap();
        let from = format!("host=127.0.0.1 port={} user=bench application_name={name}", primary.port);
        server.run("pg_basebackup", &["-D", &server.data(), "-d", &from, "-R", "-c", "fast", "-N"]);
        server.configure("");
        server.run_up();
        server
    }

    fn make() -> Option<Server> {
        let Some(binaries) = binaries() else {
            println!("skipped: no initdb in TEST_POSTGRES_BIN, PATH or /usr/lib/postgresql");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        if let Some(user) = other_user() {
            std::os::unix::fs::chown(folder.path(), Some(user), Some(user)).unwrap();
        }
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        Some(Server { port: probe.local_addr().unwrap().port(), folder, binaries })
    }

    pub(crate) fn data(&self) -> String {
        self.folder.path().join("data").to_str().unwrap().to_owned()
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://bench@127.0.0.1:{}/postgres", self.port)
    }

    /// Adds lines to postgresql.conf.
    pub(crate) fn configure(&self, settings: &str) {
        let path = Path::new(&self.data()).join("postgresql.conf");
        let was = std::fs::read_to_string(&path).unwrap();
        let (port, shared) = (self.port, "shared_buffers = 16MB\nmax_connections = 30");
        let always =
            format!("port = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\n{shared}");
        std::fs::write(&path, format!("{was}\n{always}\n{settings}\n")).unwrap();
    }

    pub(crate) fn run_up(&self) {
        let log = self.folder.path().join("log");
        self.run("pg_ctl", &["-D", &self.data(), "-w", "-l", log.to_str().unwrap(), "start"]);
    }

    pub(crate) fn run_down(&self) {
        self.run("pg_ctl", &["-D", &self.data(), "-w", "-m", "immediate", "stop"]);
    }

    pub(crate) fn reload(&self) {
        self.run("pg_ctl", &["-D", &self.data(), "reload"]);
    }

    pub(crate) fn promote(&self) {
        self.run("pg_ctl", &["-D", &self.data(), "-w", "promote"]);
    }

    pub(crate) fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = Command::new(self.binaries.join(program));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.current_dir(self.folder.path());
        if let Some(user) = other_user() {
            command.uid(user).gid(user);
        }
        assert!(command.status().unwrap().success(), "{program} {arguments:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let data = self.data();
        if Path::new(&data).join("postmaster.pid").exists() {
            self.run_down();
        }
    }
}

fn binaries() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    // Set by `cargo xtask test`, which unpacks PostgreSQL on a machine that has none.
    let unpacked = std::env::var_os("TEST_POSTGRES_BIN").map(PathBuf::from);
    let mut folders: Vec<PathBuf> = unpacked.into_iter().chain(std::env::split_paths(&path)).collect();
    folders.extend(versions.map(|version| version.path().join("bin")));
    let needed = ["initdb", "postgres", "pg_ctl", "pg_basebackup"];
    folders.into_iter().find(|folder| needed.iter().all(|program| folder.join(program).exists()))
}

/// PostgreSQL refuses to run as root: "nobody" does it then.
fn other_user() -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    is_root.then_some(65_534)
}
