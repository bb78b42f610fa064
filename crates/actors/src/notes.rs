//! What the loop tells, as lines of the log.

use millrace_model::Mono;
use millrace_router::Note;

const TARGET: &str = "millrace::loop";
/// Warnings per second: a capability that fails at every message must not fill a disk. The next line tells how many
/// were left out.
const WARNINGS_MAX: u32 = 100;

#[derive(Default)]
pub(crate) struct Log {
    second: u64,
    lines: u32,
    suppressed: u64,
}

impl Log {
    pub(crate) fn note(&mut self, at: Mono, note: &Note) {
        let event = note.ty();
        match note {
            Note::ActorFault { .. } | Note::CapabilityDown { .. } | Note::TimerLost { .. } => {
                if let Some(suppressed) = self.next(at) {
                    tracing::warn!(target: TARGET, event, data = %note.data(), suppressed, "the loop says");
                }
            }
            Note::CapabilityUp { .. } => {
                tracing::info!(target: TARGET, event, data = %note.data(), "the loop says");
            }
            Note::RoutingError { .. } | Note::OrphanOutcome { .. } | Note::RequestTimedOut { .. } => {
                tracing::debug!(target: TARGET, event, data = %note.data(), "the loop says");
            }
            Note::TimerSet { .. } | Note::TimerFired { .. } | Note::TimerCancelled { .. } => {
                tracing::trace!(target: TARGET, event, data = %note.data(), "the loop says");
            }
        }
    }

    /// How many lines before this one were left out; `None` if this one must be too.
    fn next(&mut self, at: Mono) -> Option<u64> {
        let second = at.0 / 1000;
        if second != self.second {
            (self.second, self.lines) = (second, 0);
        }
        if self.lines >= WARNINGS_MAX {
            self.suppressed += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

pub(crate) fn boot_complete(capabilities: usize, timers: usize) {
    tracing::info!(target: TARGET, event = "Sys.BootComplete", capabilities, timers, "the loop says");
}

pub(crate) fn boot_failed(reason: &dyn std::fmt::Display) {
    tracing::error!(target: TARGET, event = "Sys.BootFailed", %reason, "the loop says");
}
