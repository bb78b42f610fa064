//! Deletes records that a snapshot has made unnecessary, long after the manifest has said so, and refuses numbers whose
//! records may be deleted.
//!
//! On an engine that only knows whether a number is taken, a writer that slept would find its old number free again,
//! place there, and confirm what nobody ever reads. So the manifest says first up to where the journal is trimmed;
//! records are deleted after the grace time; and nobody believes a placing, a record or its absence by a manifest that
//! was read more than an hour ago, which is far less than the grace time.

use millrace_journal::{HeadGuard, JournalError};

use crate::commit::{Stop, refused};
use crate::handle::SharedHandle;

impl SharedHandle {
    /// Deletes records whose grace time is over. Returns up to where, if anything was due.
    pub(crate) fn delete_trimmed(&self) -> Result<Option<u64>, JournalError> {
        let (trimmed_to, is_due) = {
            let known = self.manifest.lock();
            let grace_ms = self.settings.trim_grace_ms;
            let seen_ms = self.clock.mono_ms().saturating_sub(known.trimmed_seen_ms);
            let by_wall_ms = self.clock.wall_ms().saturating_sub(known.manifest.trimmed_at_ms);
            // After a restart nobody has seen the whole grace time pass. The wall clocks of two servers are believed after
            // twice the time, and only if everybody has had to read the manifest again since this handle read it: a
            // clock that is days ahead must not delete what a server with an older manifest still relies on.
            let is_old = by_wall_ms >= grace_ms.saturating_mul(2)
                && seen_ms >= self.settings.manifest_age_ms_max.saturating_mul(2);
            (known.manifest.trimmed_to, seen_ms >= grace_ms || is_old)
        };
        if trimmed_to == 0 || !is_due {
            return Ok(None);
        }
        self.noted(self.journal.delete_below(trimmed_to + 1))?;
        Ok(Some(trimmed_to))
    }

    /// Refuses to place a number that is trimmed, or to believe that nobody has it. Not needed where the engine compares
    /// with the newest number itself.
    pub(crate) fn refuse_trimmed(&self, n: u64) -> Result<(), Stop> {
        if self.fitness.head_guard == HeadGuard::Engine {
            return Ok(());
        }
        self.refresh_manifest()?;
        let trimmed_to = self.manifest.lock().manifest.trimmed_to;
        if n > trimmed_to { Ok(()) } else { Err(stale(n, trimmed_to)) }
    }

    /// Refuses to believe a record that was read, or its absence, if its number was trimmed so long ago that it may be
    /// deleted: a record under such a number may be one that a sleeping writer placed for nobody. A follower that is
    /// less than an hour behind the trim goes on.
    pub(crate) fn refuse_deleted(&self, n: u64) -> Result<(), Stop> {
        if self.fitness.head_guard == HeadGuard::Engine {
            return Ok(());
        }
        self.refresh_manifest()?;
        let known = self.manifest.lock();
        let trimmed_to = known.manifest.trimmed_to;
        let trimmed_before = known.trimmed_before(self.clock.as_ref(), self.settings.manifest_age_ms_max);
        if n > trimmed_to.min(trimmed_before.unwrap_or(trimmed_to)) {
            Ok(())
        } else {
            Err(stale(n, trimmed_to))
        }
    }

    /// Reads the manifest again if the last reading is too old to rely on.
    fn refresh_manifest(&self) -> Result<(), Stop> {
        let is_stale = {
            let engine_ms = self.journal.engine_time_ms();
            let age_ms_max = self.settings.manifest_age_ms_max;
            self.manifest.lock().is_stale(self.clock.as_ref(), engine_ms, age_ms_max)
        };
        if is_stale { self.read_manifest_until_known() } else { Ok(()) }
    }

    /// Reads the manifest again, and waits as long as the engine is away.
    pub(crate) fn read_manifest_until_known(&self) -> Result<(), Stop> {
        for attempt in 0u32.. {
            match self.read_manifest() {
                Ok(()) => return Ok(()),
                Err(JournalError::Unknown(cause)) => {
                    self.unreachable(&cause.to_string());
                    self.back_off(attempt).map_err(Stop::End)?;
                }
                Err(error) => return Err(Stop::End(refused(&error.to_string()))),
            }
        }
        Err(Stop::End(crate::handle::closed()))
    }
}

fn stale(n: u64, trimmed_to: u64) -> Stop {
    Stop::Stale(format!("it stands before record {n}, and the journal is trimmed to {trimmed_to}"))
}
