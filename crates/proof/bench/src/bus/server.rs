//! The server under test, as a child process.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::Deserialize;

use crate::error::BenchError;

pub(crate) struct BenchServer {
    program: PathBuf,
    folder: PathBuf,
    socket: &'static str,
    store: ServedStore,
    child: Child,
    ready: ReadyLine,
}

/// The store of a server, and its settings besides.
#[derive(Clone, Debug)]
pub(crate) struct ServedStore {
    /// With its secrets, so it is told by the environment and not in the list of processes.
    pub(crate) url: String,
    pub(crate) flags: Vec<String>,
}

impl ServedStore {
    /// A file in the folder of the server.
    fn local() -> ServedStore {
        ServedStore { url: "sqlite:///bench.db".to_owned(), flags: Vec::new() }
    }
}

/// How a server ended, and the report of `doctor` on its store.
pub(crate) struct Examined {
    pub(crate) stopped_well: bool,
    pub(crate) healthy: bool,
    pub(crate) told: String,
}

#[derive(Deserialize)]
struct ReadyLine {
    http: String,
    ws: String,
}

impl BenchServer {
    pub(crate) fn start(program: &Path, folder: &Path) -> Result<BenchServer, BenchError> {
        BenchServer::with_socket(program, folder, "none")
    }

    /// Starts a server that also has the NDJSON socket of the CQRS loop, at this path in the folder.
    pub(crate) fn with_socket(
        program: &Path,
        folder: &Path,
        socket: &'static str,
    ) -> Result<BenchServer, BenchError> {
        BenchServer::with(program, folder, socket, ServedStore::local())
    }

    /// Starts a server on any store. If the store is a shared one, the server may still have to take the lead.
    pub(crate) fn on_store(
        program: &Path,
        folder: &Path,
        store: ServedStore,
    ) -> Result<BenchServer, BenchError> {
        BenchServer::with(program, folder, "none", store)
    }

    fn with(
        program: &Path,
        folder: &Path,
        socket: &'static str,
        store: ServedStore,
    ) -> Result<BenchServer, BenchError> {
        let (child, ready) = spawn(program, folder, socket, &store)?;
        Ok(BenchServer {
            program: program.to_owned(),
            folder: folder.to_owned(),
            socket,
            store,
            child,
            ready,
        })
    }

    /// Kills the process with SIGKILL and starts a new one on the same store.
    pub(crate) fn kill_and_restart(&mut self) -> Result<(), BenchError> {
        self.kill();
        self.restart()
    }

    /// Starts a server that has ended again, on the same store.
    pub(crate) fn restart(&mut self) -> Result<(), BenchError> {
        (self.child, self.ready) = spawn(&self.program, &self.folder, self.socket, &self.store)?;
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn ws(&self) -> &str {
        &self.ready.ws
    }

    pub(crate) fn get(&self, path: &str) -> Result<String, BenchError> {
        let mut response = ureq::get(format!("{}{path}", self.ready.http)).call()?;
        Ok(response.body_mut().with_config().limit(64 << 20).read_to_string()?)
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Result<(), BenchError> {
        let request = ureq::post(format!("{}{path}", self.ready.http));
        request.header("content-type", "application/json").send(body).map(|_| ()).map_err(BenchError::from)
    }

    /// The JSON document at `path`.
    pub(crate) fn document(&self, path: &str) -> Result<serde_json::Value, BenchError> {
        let text = self.get(path)?;
        serde_json::from_str(&text).map_err(|_| BenchError::Unexpected(text))
    }

    /// Number of commits so far: each is one sync.
    pub(crate) fn commits(&self) -> Result<f64, BenchError> {
        self.metric("millrace_commits_total")
    }

    pub(crate) fn metric(&self, name: &str) -> Result<f64, BenchError> {
        let metrics = self.get("/metrics")?;
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse().ok())
            .ok_or_else(|| BenchError::Unexpected(format!("no {name} in /metrics")))
    }

    /// The part that a server on a shared store has in it: `leader` or `follower`.
    pub(crate) fn role(&self) -> Option<String> {
        self.readiness()["role"].as_str().map(str::to_owned)
    }

    /// Role and phase of a server on a shared store, in one text.
    pub(crate) fn role_and_phase(&self) -> String {
        let readiness = self.readiness();
        let text = |name: &str| readiness[name].as_str().unwrap_or_default().to_owned();
        format!("{} {}", text("role"), text("phase"))
    }

    /// Also of a server that is not ready; null if the server cannot be reached.
    fn readiness(&self) -> serde_json::Value {
        let request = ureq::get(format!("{}/readyz", self.ready.http));
        let answer = request.config().http_status_as_error(false).build().call();
        let text = answer.ok().and_then(|mut answer| answer.body_mut().read_to_string().ok());
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// Resident memory in MB (10^6 bytes), where the system tells.
    pub(crate) fn memory_mb(&self) -> Option<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().split(' ').next()?.parse::<f64>().ok().map(|kib| kib * 1024.0 / 1e6)
    }

    pub(crate) fn stop(mut self) -> Result<(), BenchError> {
        self.kill();
        Ok(())
    }

    /// Stops the server as an operator would, by SIGTERM, and waits: it gives the lead back.
    pub(crate) fn terminate(mut self) -> Result<(), BenchError> {
        self.ask_to_stop()?;
        self.wait_for_end()
    }

    pub(crate) fn ask_to_stop(&mut self) -> Result<(), BenchError> {
        let asked = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status();
        asked.map(drop).map_err(|source| BenchError::io("stopping the server under test", source))
    }

    pub(crate) fn wait_for_end(&mut self) -> Result<(), BenchError> {
        let ended = self.child.wait();
        ended.map(drop).map_err(|source| BenchError::io("waiting for the end of a server under test", source))
    }

    /// Stops the server as an operator would, by SIGTERM, and waits. Then examines the store with the program's own
    /// `doctor`.
    pub(crate) fn stop_and_examine(mut self) -> Result<Examined, BenchError> {
        self.ask_to_stop()?;
        let stopped = self.child.wait();
        let stopped = stopped.map_err(|source| BenchError::io("stopping the server under test", source))?;
        let doctor = Command::new(&self.program)
            .args(["doctor", "--store", &self.store.url])
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|source| BenchError::io("examining the store", source))?;
        let told = [doctor.stdout, doctor.stderr].concat();
        Ok(Examined {
            stopped_well: stopped.success(),
            healthy: doctor.status.success(),
            told: String::from_utf8_lossy(&told).trim().replace(&format!("{}/", self.folder.display()), ""),
        })
    }

    pub(crate) fn kill(&mut self) {
        // Both fail only if the process has already ended, which is the goal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Servers on a shared store remark that the loopback cannot be reached from other machines, and who has the lead.
fn log_level(store: &ServedStore) -> &'static str {
    match store.url.starts_with("sqlite:") {
        true => "warn,millrace::dead_letters=error",
        false => "error",
    }
}

fn spawn(
    program: &Path,
    folder: &Path,
    socket: &str,
    store: &ServedStore,
) -> Result<(Child, ReadyLine), BenchError> {
    let doing = "starting the server under test";
    let mut child = Command::new(program)
        .args(["serve", "--listen", "127.0.0.1:0", "--socket", socket])
        .args(&store.flags)
        .current_dir(folder)
        .env("MILLRACE_STORE", &store.url)
        .env_remove("BUS_PORT")
        // Some loads make dead letters on purpose, or end servers: their warnings would hide the report.
        .env("RUST_LOG", log_level(store))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|source| BenchError::io(doing, source))?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(|source| BenchError::io(doing, source))?;
    }
    match serde_json::from_str(&line) {
        Ok(ready) => Ok((child, ready)),
        Err(_) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(BenchError::NotReady(line))
        }
    }
}
