//! Several real servers on one store.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

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
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = probe.local_addr().unwrap();
        drop(probe);
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

    /// Returns status, head and body of a GET; `None` if the server cannot be reached.
    pub fn get(&self, path: &str) -> Option<(u16, String, String)> {
        self.request("GET", path, "")
    }

    pub fn post(&self, path: &str, body: &str) -> Option<(u16, String, String)> {
        self.request("POST", path, body)
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Option<(u16, String, String)> {
        let mut stream = TcpStream::connect_timeout(&self.addr, Duration::from_secs(2)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let (addr, bytes) = (self.addr, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n");
        let request =
            format!("{head}content-type: application/json\r\ncontent-length: {bytes}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, head.to_owned(), body.to_owned()))
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

/// The binary, without the settings of the user who runs the tests.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    for (name, _) in std::env::vars_os() {
        if ["MILLRACE_", "BUS_", "MONGO_"].iter().any(|own| name.to_string_lossy().starts_with(own)) {
            command.env_remove(name);
        }
    }
    command
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
