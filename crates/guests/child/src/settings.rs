//! How a child is started, and every bound on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::guard::Guard;
use millrace_kernel::CapabilityOrigin;
use millrace_wire::os::LINE_BYTES_MAX;

/// A `[[capability]]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildSettings {
    /// Must be the name in the child's manifest.
    pub name: String,
    /// The program and its arguments; no shell is involved.
    pub command: Vec<String>,
    /// Start the child again when it ends by itself.
    pub restart: bool,
    /// Added to the server's own environment.
    pub env: BTreeMap<String, String>,
    /// The child's working directory; `None` = that of the server.
    pub cwd: Option<PathBuf>,
}

impl ChildSettings {
    /// The rule for names of capabilities.
    pub fn name_is_legal(name: &str) -> bool {
        millrace_router::Manifest::name_is_legal(name)
    }

    /// Whether the child is a process of its own making or one of `millrace guest`, which runs WebAssembly.
    pub(crate) fn origin(&self) -> CapabilityOrigin {
        let program = self.command.first().and_then(|program| Path::new(program).file_name());
        let is_guest = self.command.get(1).is_some_and(|word| word == "guest");
        match program.is_some_and(|program| program == "millrace") && is_guest {
            true => CapabilityOrigin::Wasm,
            false => CapabilityOrigin::Child,
        }
    }
}

#[derive(Clone, Debug)]
pub struct ChildLimits {
    /// Time until the child has sent its manifest. Otherwise the start fails.
    pub manifest_ms: u64,
    /// Bytes of a line that the child writes. A longer line: the request in progress is answered with 413.
    pub line_bytes_max: usize,
    /// Time for the child to answer a request or an event of the bus. Then the message is given up and the child is
    /// killed, which counts as a crash (a child without `restart` is not killed but handed the next message). The same
    /// if it reads nothing of what was written to it for this long. 0 = no limit.
    pub answer_ms: u64,
    /// An event that the child has read and does not answer counts as finished after this time: the row of a durable
    /// timer is deleted.
    pub event_ms: u64,
    /// The size of the pipe to the child's stdin, in whole pages: how much may have been written to it and not read.
    /// The child cannot read more than this at once; so a child that handles one line after another has at most this
    /// much in a buffer of its own when it ends. Only on Linux; elsewhere the system decides.
    pub ahead_bytes: usize,
    /// Restarts within the window, or runs in a row without an answer. Above, the child is unhealthy.
    pub restarts_max: usize,
    pub restart_window_ms: u64,
    /// Pause between the end of the child and its next start.
    pub restart_pause_ms: u64,
    /// Time from the end of its stdin until the child is killed.
    pub end_ms: u64,
    /// Lines of the child's stderr logged per second. The rest is left out and counted.
    pub log_lines_max: usize,
    /// The program through which the child is started (`guard.rs`). `None` = started directly: then a child that
    /// ignores the end of its stdin lives on when this process is killed.
    pub guard: Option<Guard>,
}

impl Default for ChildLimits {
    fn default() -> Self {
        ChildLimits {
            manifest_ms: 10_000,
            line_bytes_max: LINE_BYTES_MAX,
            answer_ms: 30_000,
            event_ms: 30_000,
            ahead_bytes: 4096,
            restarts_max: 3,
            restart_window_ms: 60_000,
            restart_pause_ms: 1000,
            end_ms: 900,
            log_lines_max: 200,
            guard: None,
        }
    }
}
