//! Writes the engine's notes to the log.

use millrace_model::Mono;
use millrace_router::Note;

const TARGET: &str = "millrace::loop";
/// Warnings per second about capabilities and timers: a capability that fails at every message must not fill a disk.
/// The next line tells how many were left out.
const FAULTS_MAX: u32 = 100;
/// Warnings per second about messages that could not be delivered. Any client can cause these, so they have a bound of
/// their own and cannot hide the others.
const ASTRAY_MAX: u32 = 10;

pub(crate) struct NoteLog {
    faults: Lines,
    astray: Lines,
}

/// Limits the number of lines per second.
struct Lines {
    max: u32,
    second: u64,
    lines: u32,
    suppressed: u64,
}

impl Default for NoteLog {
    fn default() -> NoteLog {
        NoteLog { faults: Lines::new(FAULTS_MAX), astray: Lines::new(ASTRAY_MAX) }
    }
}

impl NoteLog {
    pub(crate) fn note(&mut self, at: Mono, note: &Note) {
        let event = note.ty();
        match note {
            Note::ActorFault { .. }
            | Note::CapabilityDown { .. }
            | Note::TimerRefused { .. }
            | Note::TimerWaits { .. }
            | Note::TimerLost { .. } => {
                if let Some(suppressed) = self.faults.next(at) {
                    tracing::warn!(target: TARGET, event, data = %note.data(), suppressed, "the loop says");
                }
            }
            Note::CapabilityUp { .. } | Note::BootComplete { .. } => {
                tracing::info!(target: TARGET, event, data = %note.data(), "the loop says");
            }
            Note::RoutingError { .. }
            | Note::OrphanOutcome { .. }
            | Note::EventDropped { .. }
            | Note::RequestTimedOut { .. } => {
                if let Some(suppressed) = self.astray.next(at) {
                    tracing::warn!(target: TARGET, event, data = %note.data(), suppressed, "the loop says");
                }
            }
            Note::Routed { .. }
            | Note::TimerSet { .. }
            | Note::TimerFired { .. }
            | Note::TimerCancelled { .. } => {
                tracing::trace!(target: TARGET, event, data = %note.data(), "the loop says");
            }
        }
    }
}

impl Lines {
    fn new(max: u32) -> Lines {
        Lines { max, second: 0, lines: 0, suppressed: 0 }
    }

    /// Returns how many lines before this one were suppressed, or `None` if this line must be suppressed, too.
    fn next(&mut self, at: Mono) -> Option<u64> {
        let second = at.0 / 1000;
        if second != self.second {
            (self.second, self.lines) = (second, 0);
        }
        if self.lines >= self.max {
            self.suppressed += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

pub(crate) fn boot_failed(reason: &dyn std::fmt::Display) {
    tracing::error!(target: TARGET, event = "Sys.BootFailed", %reason, "the loop says");
}
