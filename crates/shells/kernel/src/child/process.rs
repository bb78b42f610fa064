//! A child process and its pipes.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStdin, ChildStdout, Command};

use crate::child::nursery;
use crate::child::settings::{ChildLimits, ChildSettings};
use crate::child::sweep;
use crate::child::words::Words;

/// Runs. Dropping it kills it with everybody it started.
#[derive(Debug)]
pub(super) struct Process {
    child: tokio::process::Child,
    /// Its own group, so that those it started end with it and a Ctrl-C at the terminal is for the server alone. `None`
    /// once it has been waited for and its group killed: the number may be somebody else's then.
    group: Option<Pid>,
    pub(super) words: Words,
    /// In the environment of everybody it started, unless they removed it.
    mark: String,
    /// Those have been ended.
    swept: bool,
}

/// Not tied to the thread they were made on: the manifest may be read on another one than the rest.
#[derive(Debug)]
pub(super) struct Pipes {
    stdin: OwnedFd,
    stdout: OwnedFd,
    /// What came with the manifest and belongs to the lines after it.
    pub(super) read_ahead: Vec<u8>,
}

impl Process {
    pub(super) async fn spawn(
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
        let mut child = nursery::spawn(command).await?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let missing = || io::Error::other("a pipe is missing");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        // Where that cannot be done the child may read more at once.
        #[cfg(target_os = "linux")]
        let _ = rustix::pipe::fcntl_setpipe_size(&stdin, limits.ahead_bytes);
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let stderr = child.stderr.take().ok_or_else(missing)?;
        let words = Words::listen(&settings.name, limits.log_lines_max, stderr);
        Ok((Process { child, group, words, mark, swept: false }, stdin, stdout))
    }

    /// How it ended, for people.
    pub(super) async fn wait(&mut self) -> String {
        let status = self.child.wait().await;
        // Those it started live on without it, and nobody else would end them. Their group keeps its number as long as
        // one of them is there.
        self.kill();
        self.group = None;
        if !self.swept {
            let mark = self.mark.clone();
            // Reads a folder of the kernel: not on this thread, which others wait for.
            let _ = tokio::task::spawn_blocking(move || sweep::end_all(&mark)).await;
            self.swept = true;
        }
        match status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Whether a status, as [`Process::wait`] returns it, is that of a process that ended as it should.
    pub(super) fn ended_well(status: &str) -> bool {
        status == std::process::ExitStatus::default().to_string()
    }

    /// It has closed its stdout, so there is no talking to it any more: a moment to end, then it is killed.
    pub(super) async fn wait_or_kill(&mut self, ms: u64) -> String {
        if let Ok(status) = tokio::time::timeout(Duration::from_millis(ms), self.wait()).await {
            return status;
        }
        self.kill_and_wait().await
    }

    pub(super) async fn kill_and_wait(&mut self) -> String {
        self.kill();
        self.wait().await
    }

    /// Its stdin ends, which tells it to end. What it still says reaches nobody.
    /// Returns whether it ended by itself.
    pub(super) async fn end(mut self, stdin: Option<ChildStdin>, mut stdout: ChildStdout, ms: u64) -> bool {
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
            // It may have ended this moment: fine.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// How many of the bytes written to a child it has not read. Where the system does not tell: none.
pub(super) fn unread(stdin: &ChildStdin) -> u64 {
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
    pub(super) fn new(stdin: ChildStdin, stdout: ChildStdout, read_ahead: Vec<u8>) -> io::Result<Pipes> {
        Ok(Pipes { stdin: stdin.into_owned_fd()?, stdout: stdout.into_owned_fd()?, read_ahead })
    }

    /// For the thread this is called on.
    pub(super) fn open(self) -> io::Result<(ChildStdin, ChildStdout, Vec<u8>)> {
        let stdin = ChildStdin::from_std(std::process::ChildStdin::from(self.stdin))?;
        let stdout = ChildStdout::from_std(std::process::ChildStdout::from(self.stdout))?;
        Ok((stdin, stdout, self.read_ahead))
    }
}
