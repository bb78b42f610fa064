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
    child: Child,
    ready: ReadyLine,
}

/// How a server ended, and the report of `doctor` on its store.
pub(crate) struct Examined {
    pub(crate) stopped_well: bool,
    pub(crate) healthy: bool,
    pub(crate) told: String,
}

const STORE: &str = "sqlite:///bench.db";

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
        let (child, ready) = spawn(program, folder, socket)?;
        Ok(BenchServer { program: program.to_owned(), folder: folder.to_owned(), socket, child, ready })
    }

    /// Kills the process with SIGKILL and starts a new one on the same store.
    pub(crate) fn kill_and_restart(&mut self) -> Result<(), BenchError> {
        self.kill();
        (self.child, self.ready) = spawn(&self.program, &self.folder, self.socket)?;
        Ok(())
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
        let metrics = self.get("/metrics")?;
        let line = metrics.lines().find_map(|line| line.strip_prefix("millrace_commits_total "));
        line.and_then(|value| value.trim().parse().ok())
            .ok_or_else(|| BenchError::Unexpected("no millrace_commits_total in /metrics".to_owned()))
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

    /// Stops the server as an operator would, by SIGTERM, and waits. Then examines the store with the program's own
    /// `doctor`.
    pub(crate) fn stop_and_examine(mut self) -> Result<Examined, BenchError> {
        let doing = "stopping the server under test";
        let wrong = |source| BenchError::io(doing, source);
        Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status().map_err(wrong)?;
        let stopped = self.child.wait().map_err(wrong)?;
        let doctor = Command::new(&self.program)
            .args(["doctor", "--store", STORE])
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

    fn kill(&mut self) {
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

fn spawn(program: &Path, folder: &Path, socket: &str) -> Result<(Child, ReadyLine), BenchError> {
    let doing = "starting the server under test";
    let mut child = Command::new(program)
        .args(["serve", "--listen", "127.0.0.1:0", "--store", STORE, "--socket", socket])
        .current_dir(folder)
        .env_remove("BUS_PORT")
        // Some loads make dead letters on purpose: their warnings would hide the report.
        .env("RUST_LOG", "warn,millrace::dead_letters=error")
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
