//! Several real servers on one store.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::engines::free_addr;
use crate::http::request;

/// Long enough for any machine; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Member {
    pub addr: SocketAddr,
    child: Option<Child>,
    folder: PathBuf,
    flags: Vec<String>,
    log: PathBuf,
}

impl Member {
    pub fn start(folder: &Path, name: &str, store: &str, flags: &[&str]) -> Member {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let addr = free_addr();
        let mut all: Vec<String> =
            ["serve", "--socket", "none", "--cache", "cache", "--store", store, "--listen"]
                .iter()
                .map(|flag| (*flag).to_owned())
                .collect();
        all.push(addr.to_string());
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let log = folder.join("log");
        let mut member = Member { addr, child: None, folder, flags: all, log };
        member.restart();
        member
    }

    pub fn restart(&mut self) {
        self.restart_with(&[]);
    }

    pub fn restart_with(&mut self, env: &[(&str, PathBuf)]) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        let mut command = program();
        command
            .args(&self.flags)
            .current_dir(&self.folder)
            .envs(env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("\"ready\":true"), "{line}: {}", self.log());
        self.child = Some(child);
    }

    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Stops the server in order and returns its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.signal("TERM");
        self.child.take().unwrap().wait().unwrap().code()
    }

    pub fn ws(&self) -> String {
        format!("ws://{}/", self.addr)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the copies in the cache: a server has one, however often it has opened its store again.
    pub fn copies(&self) -> Vec<PathBuf> {
        let mut found = self.cached("copy-");
        found.retain(|path| path.extension().is_some_and(|extension| extension == "db"));
        found
    }

    /// Returns files of the cache whose names have this in them.
    pub fn cached(&self, part: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.join("cache")).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(part)))
            .collect()
    }

    /// Returns status, head and body of a GET; `None` if the server cannot be reached.
    pub fn get(&self, path: &str) -> Option<(u16, String, String)> {
        request(self.addr, "GET", path, None, "")
    }

    /// Publishes a payload to `orders` over HTTP, and returns status and body of the answer.
    pub fn post(&self, payload: &str) -> Option<(u16, String)> {
        let body = format!("{{\"payload\":{payload}}}");
        let (status, _, body) = request(self.addr, "POST", "/topics/orders/events", None, &body)?;
        Some((status, body))
    }

    /// Returns the status of an answer to the holder of a token.
    pub fn status_as(&self, token: &str, path: &str) -> Option<u16> {
        Some(request(self.addr, "GET", path, Some(token), "")?.0)
    }

    /// Returns the value of a metric without labels.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let (_, _, page) = self.get("/metrics")?;
        page.lines().find_map(|line| line.strip_prefix(&format!("millrace_{name} "))?.parse().ok())
    }

    /// Returns why the server is not ready; `None` while it is.
    pub fn not_ready(&self) -> Option<String> {
        let (status, _, body) = self.get("/readyz")?;
        let doc: Value = serde_json::from_str(&body).ok()?;
        (status == 503).then(|| doc["detail"].as_str().unwrap_or_default().to_owned())
    }

    pub fn readyz(&self) -> Option<Value> {
        let (_, _, body) = self.get("/readyz")?;
        serde_json::from_str(&body).ok()
    }

    pub fn role(&self) -> Option<String> {
        self.readyz()?["role"].as_str().map(str::to_owned)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(child) = &self.child {
            // A stopped process does not die of SIGKILL later than anybody else, but be sure that it is reaped.
            let _ = Command::new("kill").args(["-s", "CONT", &child.id().to_string()]).status();
        }
        self.kill();
        if thread::panicking() {
            eprintln!("log of {}:\n{}", self.addr, self.log());
        }
    }
}

/// The binary, without the settings of the user who runs the tests, and with credentials for S3 servers of tests.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    for (name, _) in std::env::vars_os() {
        if ["MILLRACE_", "BUS_", "MONGO_", "AWS_"].iter().any(|own| name.to_string_lossy().starts_with(own)) {
            command.env_remove(name);
        }
    }
    command.env("AWS_ACCESS_KEY_ID", "tests").env("AWS_SECRET_ACCESS_KEY", "secret-of-the-tests");
    command
}

/// Publishes a payload to `orders` with the command, which finds the leader.
#[track_caller]
pub fn publish(urls: &str, payload: &str) {
    let ran = program().args(["pub", "orders", payload, "--url", urls]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// Returns the payloads of `orders` that a server has; none if it does not answer.
pub fn payloads(member: &Member) -> Vec<String> {
    let Some((200, _, body)) = member.get("/topics/orders/events?from=1&limit=1000") else {
        return Vec::new();
    };
    let page: Value = serde_json::from_str(&body).unwrap();
    let events = page["events"].as_array().cloned().unwrap_or_default();
    events.iter().map(|event| event["payload"].to_string()).collect()
}

/// Waits until `look` returns something.
#[track_caller]
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what} did not happen");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the index of the member that leads, when one does.
#[track_caller]
pub fn leader(members: &[Member]) -> usize {
    wait_for("somebody leads", || {
        let running = members.iter().enumerate().filter(|(_, member)| member.is_running());
        running.filter(|(_, member)| member.role().as_deref() == Some("leader")).map(|(at, _)| at).next()
    })
}
