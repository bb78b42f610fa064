//! The process of an engine: its log, its end, and the wait until it answers.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const READY_MAX: Duration = Duration::from_secs(60);
const READY_POLL: Duration = Duration::from_millis(20);
const LOG_LINES_TOLD: usize = 15;

/// The signal that stops an engine at once. Its data is thrown away, so that nothing has to be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopSignal {
    Kill,
    /// Lets PostgreSQL stop its own processes.
    Quit,
}

impl StopSignal {
    fn name(self) -> &'static str {
        match self {
            StopSignal::Kill => "KILL",
            StopSignal::Quit => "QUIT",
        }
    }
}

pub(super) struct EngineServer {
    name: &'static str,
    child: Child,
    signal: StopSignal,
    log: PathBuf,
}

impl EngineServer {
    /// Starts the program, with its output in `run/log`. `setpriv` sees to it that the engine gets its signal also when
    /// this process is killed.
    pub(super) fn spawn(
        name: &'static str,
        program: &[&str],
        signal: StopSignal,
        run: &Path,
        adapt: impl FnOnce(&mut Command),
    ) -> Result<EngineServer> {
        let log = run.join("log");
        let output = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        let errors = output.try_clone().context("cannot use the log twice")?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", signal.name()]).args(program);
        command.current_dir(run).stdin(Stdio::null()).stdout(output).stderr(errors);
        adapt(&mut command);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(EngineServer { name, child, signal, log })
    }

    pub(super) fn wait_until(&mut self, is_ready: &dyn Fn() -> bool) -> Result<()> {
        let began = Instant::now();
        while !is_ready() {
            self.check_alive()?;
            if READY_MAX < began.elapsed() {
                bail!("{} is not ready after {} s:\n{}", self.name, READY_MAX.as_secs(), self.end_of_log());
            }
            thread::sleep(READY_POLL);
        }
        Ok(())
    }

    pub(super) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait().with_context(|| format!("cannot look at {}", self.name))? {
            Some(status) => bail!("{} has ended ({status}):\n{}", self.name, self.end_of_log()),
            None => Ok(()),
        }
    }

    pub(super) fn stop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let id = self.child.id();
            let told = match self.signal {
                StopSignal::Kill => self.child.kill(),
                // The shell's own `kill`: a small system has no such program.
                StopSignal::Quit => {
                    Command::new("sh").args(["-c", &format!("kill -QUIT {id}")]).status().map(|_| ())
                }
            };
            if let Err(error) = told.and_then(|()| self.child.wait()) {
                eprintln!("engines: cannot stop {} (process {id}): {error}", self.name);
            }
        }
    }

    fn end_of_log(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_TOLD)..].join("\n")
    }
}

impl Drop for EngineServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns ports of the loopback that nobody uses, all different.
pub(super) fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT]> {
    let mut ports = [0; COUNT];
    let mut listeners = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("no port is free")?;
        *port = listener.local_addr().context("a port has no number")?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

pub(super) fn accepts(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_are_different() {
        let [a, b, c] = free_ports().unwrap();
        assert!(a != b && b != c && a != c, "{a} {b} {c}");
    }

    #[test]
    fn a_program_that_ends_is_told_with_its_last_words() {
        let run = crate::repo::target().join(format!("engines-test-{}", std::process::id()));
        fs::create_dir_all(&run).unwrap();
        let program = ["sh", "-c", "echo the port is taken; exit 3"];
        let mut server = EngineServer::spawn("Mill", &program, StopSignal::Kill, &run, |_| {}).unwrap();
        let error = server.wait_until(&|| false).unwrap_err().to_string();
        assert!(
            error.contains("Mill has ended (exit status: 3)") && error.contains("port is taken"),
            "{error}"
        );
        fs::remove_dir_all(&run).unwrap();
    }
}
