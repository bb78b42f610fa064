//! The real binary as a child process, with its store in a folder of its own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::socket::Socket;

pub struct Server {
    folder: TempDir,
    flags: Vec<String>,
    env: Vec<(String, PathBuf)>,
    child: Child,
    ready: Value,
}

impl Server {
    pub fn start() -> Server {
        Server::with(&[])
    }

    pub fn with(flags: &[&str]) -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let (child, ready) = spawn(folder.path(), command(&flags));
        Server { folder, flags, env: Vec::new(), child, ready }
    }

    /// Starts a server on a store that `make` writes first, at the path given to it.
    pub fn on_store(make: impl FnOnce(&Path)) -> Server {
        Server::on_store_with(make, &[])
    }

    pub fn on_store_with(make: impl FnOnce(&Path), flags: &[&str]) -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        make(&folder.path().join("test.db"));
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let (child, ready) = spawn(folder.path(), command(&flags));
        Server { folder, flags, env: Vec::new(), child, ready }
    }

    /// Starts a server with environment variables.
    pub fn with_env(flags: &[&str], env: &[(&str, &Path)]) -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let env: Vec<(String, PathBuf)> =
            env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut command = command(&flags);
        command.envs(env.iter().cloned());
        let (child, ready) = spawn(folder.path(), command);
        Server { folder, flags, env, child, ready }
    }

    /// Starts a server with environment variables and its log in a file.
    pub fn with_log_and_env(flags: &[&str], env: &[(&str, &Path)]) -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let log = std::fs::File::create(folder.path().join("log")).expect("a file");
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut command = command(&flags);
        let env: Vec<(String, PathBuf)> =
            env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        command.envs(env.iter().cloned()).stderr(log);
        let (child, ready) = spawn(folder.path(), command);
        Server { folder, flags, env, child, ready }
    }

    /// Starts a server with a settings file, and its log in a file beside it.
    pub fn with_config(config: &str, flags: &[&str]) -> Server {
        Server::with_log_level(config, flags, "warn")
    }

    pub fn with_log_level(config: &str, flags: &[&str], level: &str) -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("millrace.toml"), config).expect("a file");
        let log = std::fs::File::create(folder.path().join("log")).expect("a file");
        let flags: Vec<String> =
            ["--config", "millrace.toml"].iter().chain(flags).map(|flag| (*flag).to_owned()).collect();
        let mut command = command(&flags);
        command.stderr(log);
        let (child, ready) = spawn_at(level, folder.path(), command);
        Server { folder, flags, env: Vec::new(), child, ready }
    }

    pub fn restart_with_log(&mut self) {
        let log = std::fs::File::create(self.folder().join("log")).expect("a file");
        let mut command = command(&self.flags);
        command.stderr(log);
        (self.child, self.ready) = spawn(self.folder.path(), command);
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("log")).expect("a log")
    }

    /// Starts a server with a limit on the size of files: behaves like a full disk, without needing a separate disk.
    pub fn with_file_blocks(blocks: u64) -> Server {
        Server::with_file_blocks_and(blocks, &[])
    }

    pub fn with_file_blocks_and(blocks: u64, flags: &[&str]) -> Server {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut shell = Command::new("sh");
        let script = format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
        shell.arg("-c").arg(script).arg(program()).args(serve_args(&flags));
        let (child, ready) = spawn(folder.path(), shell);
        Server { folder, flags, env: Vec::new(), child, ready }
    }

    /// Starts a server with limits on open files, soft and hard, and its log in a file.
    pub fn with_open_files(soft: u64, hard: u64) -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let log = std::fs::File::create(folder.path().join("log")).expect("a file");
        let mut shell = Command::new("sh");
        let script = format!("ulimit -Sn {soft}; ulimit -Hn {hard}; exec \"$0\" \"$@\"");
        shell.arg("-c").arg(script).arg(program()).args(serve_args(&[])).stderr(log);
        let (child, ready) = spawn(folder.path(), shell);
        Server { folder, flags: Vec::new(), env: Vec::new(), child, ready }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns what the server printed when it was ready.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// Waits until the server has ended by itself, and returns its exit code.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().expect("the child can be waited for").code()
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("the child can be killed");
        self.child.wait().expect("the child can be waited for");
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([&format!("-{name}"), &self.pid().to_string()])
            .status()
            .expect("kill runs");
        assert!(status.success());
    }

    /// Sends SIGTERM and returns the exit code.
    pub fn terminate(&mut self) -> Option<i32> {
        self.signal("TERM");
        self.child.wait().expect("the child can be waited for").code()
    }

    /// Starts the server again, with the same environment.
    pub fn restart(&mut self) {
        let mut command = command(&self.flags);
        command.envs(self.env.iter().cloned());
        (self.child, self.ready) = spawn(self.folder.path(), command);
    }

    /// Starts the server again at the same port, so that clients find it again.
    pub fn restart_at_its_port(&mut self) {
        let url = self.http_url();
        let mut command = command(&self.flags);
        command.envs(self.env.iter().cloned()).args(["--listen", url.trim_start_matches("http://")]);
        (self.child, self.ready) = spawn(self.folder.path(), command);
    }

    pub fn restart_logging_to(&mut self, log: &Path) {
        let mut command = command(&self.flags);
        command.envs(self.env.iter().cloned()).stderr(std::fs::File::create(log).expect("a file"));
        (self.child, self.ready) = spawn(self.folder.path(), command);
    }

    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.restart();
    }

    pub fn ws_url(&self) -> String {
        self.ready["ws"].as_str().expect("a ws address").to_owned()
    }

    pub fn http_url(&self) -> String {
        self.ready["http"].as_str().expect("an http address").to_owned()
    }

    /// Returns the URL of the store, for commands that open it directly.
    pub fn store_url(&self) -> String {
        format!("sqlite:///{}", self.folder().join("test.db").display())
    }

    pub fn socket(&self) -> Socket {
        Socket::open(&self.ws_url())
    }

    pub fn get(&self, path: &str) -> (u16, Value) {
        let (status, text) = self.request("GET", path, None);
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send_json("POST", path, body)
    }

    pub fn send_json(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.request(method, path, Some(body.to_string()));
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub fn request(&self, method: &str, path: &str, body: Option<String>) -> (u16, String) {
        self.request_bytes(method, path, body.unwrap_or_default().into_bytes())
    }

    pub fn request_bytes(&self, method: &str, path: &str, body: Vec<u8>) -> (u16, String) {
        let mut response = self.send(method, path, &[], body);
        let text = response.body_mut().with_config().limit(64 << 20).read_to_string().expect("a body");
        (response.status().as_u16(), text)
    }

    /// Sends a request with a token.
    pub fn request_as(&self, token: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let headers = [("authorization", format!("Bearer {token}"))];
        let mut response = self.send(method, path, &headers, body.to_string().into_bytes());
        let text = response.body_mut().read_to_string().expect("a body");
        (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: Vec<u8>,
    ) -> ureq::http::Response<ureq::Body> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .build()
            .into();
        let request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.http_url()));
        let request = if headers.iter().any(|(name, _)| *name == "content-type") {
            request
        } else {
            request.header("content-type", "application/json")
        };
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
        agent.run(request.body(body).expect("a request")).expect("the server answers")
    }

    /// Returns the names of all topics except the server's own.
    #[track_caller]
    pub fn topics(&self) -> Vec<String> {
        let (status, list) = self.get("/topics");
        assert_eq!(status, 200, "{list}");
        user_topics(&list)
    }

    /// Returns the durable commit of a group in a partition.
    #[track_caller]
    pub fn committed(&self, topic: &str, group: &str, partition: usize) -> u64 {
        let (status, offsets) = self.get(&format!("/topics/{topic}/offsets"));
        assert_eq!(status, 200, "{offsets}");
        let committed = &offsets["partitions"][partition]["groups"][group]["committed"];
        committed.as_u64().unwrap_or_else(|| panic!("no group {group} in {offsets}"))
    }
}

/// Returns the names in an answer of `GET /topics`, without the server's own, which always exist.
#[track_caller]
pub fn user_topics(list: &Value) -> Vec<String> {
    let names = list["topics"].as_array().expect("topics").iter().map(|topic| topic["topic"].as_str());
    let (own, users): (Vec<_>, Vec<_>) =
        names.map(|name| name.expect("a name").to_owned()).partition(|name| name.starts_with("system."));
    assert_eq!(own, ["system.bus.audit", "system.bus.dlq", "system.metrics"]);
    users
}

/// Waits until `is_so` returns true. The limit of half a minute is no judgement of speed: the panic says which
/// condition never became true.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "never happened: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if the server has ended already, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_millrace"))
}

fn serve_args(flags: &[String]) -> Vec<String> {
    let mut args = vec!["serve".to_owned()];
    if !flags.iter().any(|flag| flag == "--listen") {
        args.extend(["--listen".to_owned(), "127.0.0.1:0".to_owned()]);
    }
    if !flags.iter().any(|flag| flag == "--store") {
        args.extend(["--store".to_owned(), "sqlite:///test.db".to_owned()]);
    }
    // Servers that run in parallel must not share the default socket path.
    if !flags.iter().any(|flag| flag == "--socket") {
        args.extend(["--socket".to_owned(), "none".to_owned()]);
    }
    args.extend_from_slice(flags);
    args
}

fn command(flags: &[String]) -> Command {
    let mut command = Command::new(program());
    command.args(serve_args(flags));
    command
}

fn spawn(folder: &Path, command: Command) -> (Child, Value) {
    spawn_at("warn", folder, command)
}

fn spawn_at(level: &str, folder: &Path, mut command: Command) -> (Child, Value) {
    let mut child = command
        .current_dir(folder)
        .env_remove("BUS_PORT")
        // Variables of the tests themselves; a server refuses settings that it does not know.
        .env_remove("MILLRACE_CRASH_SEED")
        .env_remove("MILLRACE_FUZZ_SEED")
        .env_remove("MILLRACE_FUZZ_SECONDS")
        .env("RUST_LOG", level)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("a pipe");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let ready = serde_json::from_str(&line).unwrap_or_else(|_| panic!("a ready line, not {line:?}"));
    (child, ready)
}
