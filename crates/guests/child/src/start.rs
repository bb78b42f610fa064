//! The start of a child: the process, and its first line, the manifest.

use std::io;
use std::time::Duration;

use millrace_kernel::Capability;
use millrace_router::{MANIFEST_BYTES_MAX, Manifest, ManifestError};
use millrace_wire::os::{Line, LineSplitter};
use tokio::io::AsyncReadExt;
use tokio::process::ChildStdout;

use crate::guard;
use crate::process::{Pipes, Process};
use crate::settings::{ChildLimits, ChildSettings};
use crate::supervise;

/// Time for a child that has closed its stdout to end.
const END_MS: u64 = 500;

/// Why a child does not run. The text names the capability and how to correct it.
#[derive(Debug, thiserror::Error)]
#[error("capability '{name}': {why}")]
pub struct ChildError {
    pub name: String,
    pub why: StartError,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot start {program:?}: {error}")]
    Spawn { program: String, error: io::Error },
    #[error("cannot talk to it: {0}")]
    Pipe(io::Error),
    #[error("it said nothing within {0} ms: its first line must be its manifest")]
    Silent(u64),
    #[error("it ended ({status}) before it said its manifest{stderr}")]
    Ended { status: String, stderr: String },
    #[error("its first line has more than {MANIFEST_BYTES_MAX} bytes: it must be its manifest")]
    TooLong,
    #[error("its first line is no manifest: {0}")]
    Manifest(#[from] ManifestError),
    #[error("its manifest says that its name is {0:?}: both names must be the same")]
    Name(String),
    #[error("its manifest is not the one it had: reload to take the new one")]
    Changed,
}

/// A child that runs and has sent its manifest. Dropping it kills it.
#[derive(Debug)]
pub struct Child {
    settings: ChildSettings,
    limits: ChildLimits,
    pub(crate) manifest: Manifest,
    pub(crate) process: Process,
    pub(crate) pipes: Pipes,
}

impl Child {
    pub async fn start(settings: ChildSettings, limits: ChildLimits) -> Result<Child, ChildError> {
        match begin(&settings, &limits).await {
            Ok((manifest, process, pipes)) => Ok(Child { settings, limits, manifest, process, pipes }),
            Err(why) => Err(ChildError { name: settings.name, why }),
        }
    }

    /// Turns the child into a capability that can be installed in a loop.
    pub fn into_capability(self) -> Capability {
        let Child { settings, limits, manifest, process, pipes } = self;
        let (known, origin) = (manifest.clone(), settings.origin());
        let capability = Capability::of_manifest(manifest, move |port| {
            Box::pin(supervise::run(port, settings, limits, known, process, pipes))
        });
        capability.of_origin(origin)
    }
}

async fn begin(
    settings: &ChildSettings,
    limits: &ChildLimits,
) -> Result<(Manifest, Process, Pipes), StartError> {
    let cannot = |error| {
        let program = settings.command.first().cloned().unwrap_or_default();
        StartError::Spawn { program, error }
    };
    let (mut process, stdin, mut stdout) = Process::spawn(settings, limits).await.map_err(cannot)?;
    let first =
        tokio::time::timeout(Duration::from_millis(limits.manifest_ms), first_line(&mut stdout)).await;
    let (line, read_ahead) = match first {
        Ok(First::Line(line, rest)) => (line, rest),
        Ok(First::TooLong) => return Err(StartError::TooLong),
        Ok(First::End) => {
            let status = process.wait_or_kill(END_MS).await;
            let stderr = match process.stderr_log.last().await {
                last_line if last_line.is_empty() => String::new(),
                last_line => format!("; its last words: {last_line}"),
            };
            return Err(StartError::Ended { status, stderr });
        }
        Err(_) => return Err(StartError::Silent(limits.manifest_ms)),
    };
    if let Some(error) = limits.guard.as_ref().and_then(|_| guard::failure(&line)) {
        return Err(cannot(error));
    }
    let text = String::from_utf8_lossy(&line);
    let manifest = Manifest::parse(&text)?;
    if *manifest.name != *settings.name {
        return Err(StartError::Name(manifest.name.to_string()));
    }
    let pipes = Pipes::new(stdin, stdout, read_ahead).map_err(StartError::Pipe)?;
    Ok((manifest, process, pipes))
}

enum First {
    /// The first line, and the bytes that came after it.
    Line(Vec<u8>, Vec<u8>),
    TooLong,
    End,
}

async fn first_line(stdout: &mut ChildStdout) -> First {
    let mut splitter = LineSplitter::new(MANIFEST_BYTES_MAX);
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(bytes @ 1..) = stdout.read(&mut buffer).await else { return First::End };
        let mut input = &buffer[..bytes];
        match splitter.next(&mut input) {
            Some(Line::Whole(line)) => {
                let line = line.to_vec();
                return First::Line(line, input.to_vec());
            }
            Some(Line::TooLong) => return First::TooLong,
            None => {}
        }
    }
}

/// Starts the child again after it ended: its manifest must be the same as before.
pub(crate) async fn again(
    settings: &ChildSettings,
    limits: &ChildLimits,
    known: &Manifest,
) -> Result<(Process, Pipes), StartError> {
    let (manifest, process, pipes) = begin(settings, limits).await?;
    if manifest.to_json() != known.to_json() {
        return Err(StartError::Changed);
    }
    Ok((process, pipes))
}
