//! A child process and its pipes.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStdin, ChildStdout, Command};

use crate::settings::{ChildLimits, ChildSettings};
use crate::spawner;
use crate::stderr_log::StderrLog;
use crate::sweep;

/// A child process that runs. Dropping it kills it and all processes it started.
#[derive(Debug)]
pub(crate) struct Process {
    child: tokio::process::Child,
    /// The child's own process group: processes it started end with it, and a Ctrl-C at the terminal goes to the server
    /// alone. `None` once the child has been waited for and its group killed, because the number may then be reused.
    group: Option<Pid>,
    pub(crate) stderr_log: StderrLog,
    /// A mark in the environment of every process that the child started, unless they removed it (`sweep.rs`).
    mark: String,
    /// The processes with this mark have been killed.
    swept: bool,
}

/// The pipes as plain descriptors, not bound to a tokio runtime: the manifest may be read on another thread than the
/// rest.
#[derive(Debug)]
pub(crate) struct Pipes {
    stdin: OwnedFd,
    stdout: OwnedFd,
    /// Bytes that were read together with the manifest and belong to the lines after it.
    pub(crate) read_ahead: Vec<u8>,
}

impl Process {
    pub(crate) async fn spawn(
        settings: &ChildSettings,
        limits: &ChildLimits,
    ) -> io::Result<(Process, ChildStdin, ChildStdout)> {
        let mark = sweep::new_mark();
        let mut command = match &limits.guard {
            Some(guard) => Command::from(guard.wrap(&settings.command)),
            None => {
                let mut command = Command::new(settings.command.first().map_or("", String::as_str));
                command.args(settings.command.iter().skip(1));
                command
            }
        };
        command
            .envs(&settings.env)
            .env(sweep::MARK, &mark)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(cwd) = &settings.cwd {
            command.current_dir(cwd);
        }
        let mut child = spawner::spawn(command).await?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let missing = || io::Error::other("a pipe is missing");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        // Where the pipe's size cannot be set, the child may read more at once.
        #[cfg(target_os = "linux")]
        let _ = rustix::pipe::fcntl_setpipe_size(&stdin, limits.ahead_bytes);
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let stderr = child.stderr.take().ok_or_else(missing)?;
        let stderr_log = StderrLog::listen(&settings.name, limits.log_lines_max, stderr);
        Ok((Process { child, group, stderr_log, mark, swept: false }, stdin, stdout))
    }

    /// The process's number; `None` once it has ended.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for the end and returns the status as text.
    pub(crate) async fn wait(&mut self) -> String {
        let status = self.child.wait().await;
        // Processes that the child started live on without it, and nothing else would end them. Their group keeps its
        // number as long as one of them lives.
        self.kill();
        self.group = None;
        if !self.swept {
            let mark = self.mark.clone();
            // Reads /proc: not on this thread, which must not block.
            let _ = tokio::task::spawn_blocking(move || sweep::end_all(&mark)).await;
            self.swept = true;
        }
        match status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Whether a status, as [`Process::wait`] returns it, is that of a successful process.
    pub(crate) fn ended_well(status: &str) -> bool {
        status == std::process::ExitStatus::default().to_string()
    }

    /// For a child that has closed its stdout, so that no talking to it is possible any more: waits `ms` for its end,
    /// then kills it.
    pub(crate) async fn wait_or_kill(&mut self, ms: u64) -> String {
        if let Ok(status) = tokio::time::timeout(Duration::from_millis(ms), self.wait()).await {
            return status;
        }
        self.kill_and_wait().await
    }

    pub(crate) async fn kill_and_wait(&mut self) -> String {
        self.kill();
        self.wait().await
    }

    /// Closes stdin, which tells the child to end, and discards the rest of its output. Kills it after `ms`. Returns
    /// whether it ended by itself.
    pub(crate) async fn end(mut self, stdin: Option<ChildStdin>, mut stdout: ChildStdout, ms: u64) -> bool {
        drop(stdin);
        let drained = async {
            let mut buffer = vec![0; 4096];
            while let Ok(1..) = stdout.read(&mut buffer).await {}
        };
        let ended = async { tokio::join!(drained, self.wait()) };
        if tokio::time::timeout(Duration::from_millis(ms), ended).await.is_err() {
            tracing::warn!("a child did not end within {ms} ms of the end of its stdin and is killed");
            self.kill_and_wait().await;
            return false;
        }
        true
    }

    fn kill(&mut self) {
        if let Some(group) = self.group {
            // An error means that the group has just ended: fine.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// How many of the bytes written to a child it has not read; 0 where the system does not tell.
pub(crate) fn unread(stdin: &ChildStdin) -> u64 {
    rustix::io::ioctl_fionread(stdin).unwrap_or(0)
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if !self.swept {
            sweep::end_all(&self.mark);
        }
    }
}

impl Pipes {
    pub(crate) fn new(stdin: ChildStdin, stdout: ChildStdout, read_ahead: Vec<u8>) -> io::Result<Pipes> {
        Ok(Pipes { stdin: stdin.into_owned_fd()?, stdout: stdout.into_owned_fd()?, read_ahead })
    }

    /// Binds the pipes to the tokio runtime of the current thread.
    pub(crate) fn open(self) -> io::Result<(ChildStdin, ChildStdout, Vec<u8>)> {
        let stdin = ChildStdin::from_std(std::process::ChildStdin::from(self.stdin))?;
        let stdout = ChildStdout::from_std(std::process::ChildStdout::from(self.stdout))?;
        Ok((stdin, stdout, self.read_ahead))
    }
}
