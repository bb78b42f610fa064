//! Deletes records that a snapshot has made unnecessary, long after the manifest has said so.
//!
//! On an engine that only knows whether a number is taken, a writer that slept would find its old number free again,
//! place there, and confirm what nobody ever reads. So the manifest says first up to where the journal is trimmed;
//! records are deleted after the grace time; and nobody believes a placing by a manifest older than an hour
//! (`commit::refresh_manifest`), which is far less than the grace time.

use millrace_journal::JournalError;

use crate::store::SharedHandle;

impl SharedHandle {
    /// Deletes records whose grace time is over. Returns up to where, if anything was due.
    pub(crate) fn delete_trimmed(&self) -> Result<Option<u64>, JournalError> {
        let (trimmed_to, is_due) = {
            let known = self.manifest.lock();
            let grace_ms = self.settings.trim_grace_ms;
            let seen_ms = self.clock.mono_ms().saturating_sub(known.trimmed_seen_ms);
            // By the wall clock only after twice the time: a clock that is hours ahead must delete nothing early.
            let by_wall_ms = self.clock.wall_ms().saturating_sub(known.manifest.trimmed_at_ms);
            let is_due = seen_ms >= grace_ms || by_wall_ms >= grace_ms.saturating_mul(2);
            (known.manifest.trimmed_to, is_due)
        };
        if trimmed_to == 0 || !is_due {
            return Ok(None);
        }
        self.journal.delete_below(trimmed_to + 1)?;
        Ok(Some(trimmed_to))
    }
}
