//! Partitions of the journal: made ahead of their use, dropped as a whole when their records are trimmed.
//!
//! Placing only notes that the head comes near the end of the last partition. The next reading of records or of the
//! outbox makes new ones; a placing does it itself only if nobody did.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millrace_journal::JournalError;
use tokio_postgres::error::SqlState;

use crate::journal::PostgresJournal;

/// Small enough that trimming gives space back, large enough that a journal has few partitions.
pub(crate) const PARTITION_RECORDS: u32 = 100_000;
/// Partitions that a single call drops: a bound for the loop, not for the work, which the next call continues.
const DROPS_MAX: usize = 1000;

/// How far the partitions reach, as far as this handle knows.
#[derive(Debug)]
pub(crate) struct PartitionsAhead {
    records: u64,
    /// The first number without a partition; 0 if not known.
    past: AtomicU64,
    wanted: AtomicBool,
}

impl PartitionsAhead {
    pub(crate) fn of(records: u32) -> PartitionsAhead {
        let records = u64::from(records.max(1));
        PartitionsAhead { records, past: AtomicU64::new(0), wanted: AtomicBool::new(false) }
    }

    /// Notes the newest record. The database makes partitions for the next `records` numbers.
    pub(crate) fn saw_head(&self, n: u64) {
        let past = self.past.load(Ordering::Relaxed);
        if n.saturating_add(self.records) >= past {
            self.wanted.store(true, Ordering::Relaxed);
        }
    }
}

impl PostgresJournal {
    /// Makes partitions if a placing has noted that they will be needed and nobody is at it. A failure is only logged:
    /// the caller wanted something else, and a placing that finds no partition reports the failure itself.
    pub(crate) fn make_partitions_if_wanted(&self) {
        let is_wanted = self.partitions.wanted.load(Ordering::Relaxed);
        if !is_wanted || !self.keeping.is_idle() || !self.partitions.wanted.swap(false, Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.make_partitions() {
            tracing::warn!(%error, "could not make the journal's next partition ahead of its use");
        }
    }

    pub(crate) fn make_partitions(&self) -> Result<(), JournalError> {
        let records = i64::try_from(self.partitions.records).unwrap_or(i64::MAX);
        let past: i64 = self.keeping.run("making partitions", async |requests| {
            let statement = requests.prepared(&self.statements.make_partitions).await?;
            Ok(requests.client.query_one(&statement, &[&records]).await?.try_get(0)?)
        })?;
        self.partitions.past.store(past.unsigned_abs(), Ordering::Relaxed);
        Ok(())
    }

    /// Drops the partitions that hold only records below `n`, the oldest first and each in a transaction of its own. If
    /// a lock is not to be had at once, the rest is left to the next call.
    pub(crate) fn drop_partitions_below(&self, n: u64) -> Result<(), JournalError> {
        let below = i64::try_from(n).unwrap_or(i64::MAX);
        for _ in 0..DROPS_MAX {
            let dropped = self.keeping.run("dropping a partition", async |requests| {
                let statement = requests.prepared(&self.statements.drop_partition).await?;
                match requests.client.query_one(&statement, &[&below]).await {
                    Ok(row) => Ok(row.try_get::<_, bool>(0)?),
                    Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                        tracing::debug!("a partition is in use: it will be dropped with the next trimming");
                        Ok(false)
                    }
                    Err(error) => Err(error.into()),
                }
            })?;
            if !dropped {
                break;
            }
        }
        Ok(())
    }
}
