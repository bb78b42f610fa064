//! How a child is started, and every bound on it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::child::guard::Guard;
use millrace_wire::os::LINE_BYTES_MAX;

/// One `[[capability]]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildSettings {
    /// As its manifest must say it.
    pub name: String,
    /// The program and its arguments; no shell is involved.
    pub command: Vec<String>,
    /// Start it again when it ends by itself.
    pub restart: bool,
    /// Added to the server's own environment.
    pub env: BTreeMap<String, String>,
    /// Where it runs; `None` = where the server does.
    pub cwd: Option<PathBuf>,
}

impl ChildSettings {
    /// The rule for names of capabilities.
    pub fn name_is_legal(name: &str) -> bool {
        millrace_router::Manifest::name_is_legal(name)
    }
}

#[derive(Clone, Debug)]
pub struct ChildLimits {
    /// Time for the manifest: the start fails.
    pub manifest_ms: u64,
    /// One line it says: the request in hand is answered with 413.
    pub line_bytes_max: usize,
    /// A request or event of the bus in its hands: given up, and it is killed, which counts as a crash (one that is not to
    /// be restarted is handed the next one). Something written to it of which it reads nothing: the same. 0 = never.
    pub answer_ms: u64,
    /// An event that it has read and does not answer counts as finished after this: the row of a durable timer goes.
    pub event_ms: u64,
    /// The size of the pipe to its stdin, in whole pages: what may have been written to it and not read. It is also the most
    /// that it reads at once, and so what a child that takes one line after another has in a buffer of its own when it ends.
    /// Only on Linux; elsewhere the system decides.
    pub ahead_bytes: usize,
    /// Starts after the first one within the window, or after as many lives in a row that answered nothing: then it is
    /// unhealthy.
    pub restarts_max: usize,
    pub restart_window_ms: u64,
    /// Between its end and the next start.
    pub restart_pause_ms: u64,
    /// From the end of its stdin until it is killed.
    pub end_ms: u64,
    /// Lines of its stderr that are logged in a second: the rest is left out and counted.
    pub log_lines_max: usize,
    /// By way of whom it is started. `None` = directly: then one that ignores the end of its stdin lives on when this
    /// process is killed.
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
