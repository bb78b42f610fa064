//! A server under load: started on a free port of the loopback and an empty folder, ended by its process id.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::PeerError;
use crate::install::Programs;
use crate::postgres_server;
use crate::system::System;

const START_MAX: Duration = Duration::from_secs(20);
const START_POLL: Duration = Duration::from_millis(20);
/// The system calls that sync. None of the servers opens its files with O_SYNC or O_DSYNC.
const SYNC_CALLS: &str = "fsync,fdatasync,sync_file_range,msync";

pub(crate) struct PeerServer {
    child: Child,
    system: System,
    pub(crate) url: String,
    /// Where strace writes a line per sync.
    trace: Option<PathBuf>,
}

impl PeerServer {
    pub(crate) fn start(
        system: System,
        programs: &Programs,
        folder: &Path,
        traced: bool,
    ) -> Result<PeerServer, PeerError> {
        let port = free_port()?;
        let log = folder.join("server.log");
        let trace = traced.then(|| folder.join("syncs.log"));
        let (program, args) = invocation(system, programs, folder, port)?;
        let mut command = match &trace {
            Some(trace) => strace(programs, trace, &program),
            None => Command::new(&program),
        };
        let libraries = match system {
            System::RedisAlways | System::RedisEverysec => Some(programs.library_path()),
            System::Postgres => programs.postgres_library_path(),
            _ => None,
        };
        command.envs(libraries.map(|path| ("LD_LIBRARY_PATH", path)));
        let output = File::create(&log).map_err(PeerError::io("making a log file"))?;
        let errors = output.try_clone().map_err(PeerError::io("making a log file"))?;
        let stdout = match system {
            System::Millrace => Stdio::piped(),
            _ => output.into(),
        };
        let child = command
            .args(args)
            .current_dir(folder)
            .env_remove("BUS_PORT")
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(errors)
            .spawn()
            .map_err(PeerError::io(format!("starting {}", system.label())))?;
        // From here on an error drops `server`, which ends the process.
        let mut server = PeerServer { child, system, url: String::new(), trace };
        let accepts = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        let at = |scheme: &str, rest: &str| format!("{scheme}127.0.0.1:{port}{rest}");
        server.url = match system {
            System::Millrace => server.ready_line(),
            System::NatsAlways | System::NatsDefault => server.wait(accepts).then(|| at("nats://", "")),
            System::RedisAlways | System::RedisEverysec => server.wait(accepts).then(|| at("redis://", "")),
            System::Postgres => server
                .wait(|| postgres_server::is_ready(folder))
                .then(|| at(&format!("postgres://{}@", postgres_server::USER), "/postgres")),
        }
        .ok_or(PeerError::NotReady { system: system.label(), log })?;
        Ok(server)
    }

    fn ready_line(&mut self) -> Option<String> {
        let mut line = String::new();
        BufReader::new(self.child.stdout.take()?).read_line(&mut line).ok()?;
        let ready: serde_json::Value = serde_json::from_str(&line).ok()?;
        ready["ws"].as_str().map(str::to_owned)
    }

    /// Waits until `is_ready`. Returns false if the process ends before, or takes too long.
    fn wait(&mut self, is_ready: impl Fn() -> bool) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < START_MAX && matches!(self.child.try_wait(), Ok(None)) {
            if is_ready() {
                return true;
            }
            std::thread::sleep(START_POLL);
        }
        false
    }

    /// Number of syncs requested so far.
    pub(crate) fn syncs(&self) -> Result<u64, PeerError> {
        let Some(trace) = &self.trace else { return Ok(0) };
        let text = std::fs::read_to_string(trace).map_err(PeerError::io("reading what strace wrote"))?;
        Ok(count_syncs(&text))
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        // Ends its processes, which would otherwise have to find out; and PostgreSQL removes what it shares with them.
        if self.system == System::Postgres {
            let quit = Command::new("kill").arg("-QUIT").arg(self.child.id().to_string()).status();
            if quit.is_ok_and(|status| status.success()) {
                self.wait(|| false);
            }
        }
        // Both fail only if the process has already ended, which is the goal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the server under strace. The tracer is the server's grandchild (-D), so the process we started is the server
/// and its id ends it. Only the named calls stop the server (--seccomp-bpf), so that counting does not change the
/// result.
fn strace(programs: &Programs, trace: &Path, program: &Path) -> Command {
    let calls = format!("trace={SYNC_CALLS}");
    let mut command = Command::new(&programs.strace);
    command.args(["-D", "-f", "--seccomp-bpf", "-qq", "-e", &calls, "-o"]).arg(trace).arg(program);
    command
}

fn invocation(
    system: System,
    programs: &Programs,
    folder: &Path,
    port: u16,
) -> Result<(PathBuf, Vec<String>), PeerError> {
    let words = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    Ok(match system {
        System::Millrace => {
            let args =
                "serve --listen 127.0.0.1:0 --store sqlite:///peer.db --socket none --durability fsync";
            (programs.millrace.clone(), words(args.to_owned()))
        }
        System::NatsAlways | System::NatsDefault => {
            let sync = if system == System::NatsAlways { "sync_interval: always" } else { "" };
            let config =
                format!("listen: \"127.0.0.1:{port}\"\njetstream {{\n  store_dir: \"data\"\n  {sync}\n}}\n");
            std::fs::write(folder.join("nats.conf"), config)
                .map_err(PeerError::io("writing the settings of NATS"))?;
            (programs.nats.clone(), words("-c nats.conf".to_owned()))
        }
        System::Postgres => postgres_server::prepare(programs, folder, port)?,
        System::RedisAlways | System::RedisEverysec => {
            let fsync = if system == System::RedisAlways { "always" } else { "everysec" };
            let mut args = words(format!(
                "--port {port} --bind 127.0.0.1 --dir . --appendonly yes --appendfsync {fsync} --save"
            ));
            // No snapshots: the append-only file is what is compared.
            args.push(String::new());
            (programs.redis.clone(), args)
        }
    })
}

/// Another process could take the port before the server does; then the server does not start, and says so.
fn free_port() -> Result<u16, PeerError> {
    let doing = "looking for a free port";
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(PeerError::io(doing))?;
    Ok(listener.local_addr().map_err(PeerError::io(doing))?.port())
}

/// A call that another thread interrupted has two lines; the second says `resumed`.
fn count_syncs(trace: &str) -> u64 {
    let begins = |line: &&str| line.contains('(') && !line.contains(" resumed>");
    trace.lines().filter(begins).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_call_counts_once() {
        let trace = "7 fdatasync(3)  = 0\n7 fsync(4 <unfinished ...>\n8 fdatasync(3) = 0\n7 <... fsync resumed>) = 0\n\
                     8 +++ exited with 0 +++\n";
        assert_eq!(count_syncs(trace), 3);
    }
}
