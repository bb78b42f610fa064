//! Deliberate bugs of a cluster, to prove that the checkers find them. The store itself stays correct: a bug is made by
//! changing its settings, the answers of its engine, its copy, or what its server does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use millrace_model::{Batch, Check, Offset, Outcome, Space, Stream, Timestamp};
use millrace_store::{
    Changes, CommitNumber, CommitVia, CopyPosition, FoldError, FoldRecord, Foldable, KeyRange, Maintained,
    MemoryStore, Page, Placement, ReadLimit, RecordedChange, Retention, Row, Store, StoreError, StreamBounds,
};
use millrace_store_journal::{JournalSettings, LEAD_KEY, Leadership};

use super::hub::State;
use super::plan::Plan;
use super::truth::Truth;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sabotage {
    /// The engine lets a second writer replace the newest record.
    TwoWriters,
    /// A placing whose outcome is unknown counts as done.
    UnknownIsYes,
    /// A placing whose outcome is unknown counts as failed.
    UnknownIsTaken,
    /// Reads are answered by a replica that lags behind.
    ReadReplica,
    /// The engine says that it compares with its head, and does not.
    TrustEveryPlacing,
    /// A server that was deposed commits on.
    IgnoreDeposed,
    /// A server that starts does not see who leads, and takes the lead unchecked.
    ForgetLead,
    /// Folding leaves out what some records did.
    SkipRecords,
    /// A copy that lost its end claims to be as new as before.
    CopyAhead,
    /// A snapshot is older than it says.
    SnapshotAhead,
    /// Records are deleted as soon as a snapshot is made, and nobody reads the manifest again.
    TrimAtOnce,
    /// No server takes the lead of a silent one.
    NobodyTakesOver,
}

/// Returns the settings of a server. `was_leader`: its last process led and was deposed.
pub(super) fn settings(
    sabotage: Option<Sabotage>,
    plan: &Plan,
    at: usize,
    was_leader: bool,
) -> JournalSettings {
    let mut settings = JournalSettings { url: format!("sim://{at}"), ..plan.settings.clone() };
    match sabotage {
        Some(Sabotage::IgnoreDeposed) if was_leader => settings.leadership = Leadership::Free,
        Some(Sabotage::TrimAtOnce) => {
            settings.trim_grace_ms = 0;
            settings.clean_up_ms = 0;
            settings.manifest_refresh_ms = u64::MAX;
            settings.manifest_age_ms_max = u64::MAX;
        }
        _ => {}
    }
    settings
}

pub(super) fn may_lead(state: &State) -> bool {
    state.sabotage != Some(Sabotage::NobodyTakesOver) || state.truth.head().0 == 0
}

/// Returns the copy as a handle gets it.
pub(super) fn copy(sabotage: Option<Sabotage>, copy: Arc<MemoryStore>) -> Arc<dyn Foldable> {
    match sabotage {
        Some(sabotage @ (Sabotage::SkipRecords | Sabotage::ForgetLead)) => {
            Arc::new(BrokenCopy { copy, sabotage, records: AtomicU64::new(0) })
        }
        _ => copy,
    }
}

/// Returns the content of a snapshot of this copy.
pub(super) fn snapshot(sabotage: Option<Sabotage>, copy: MemoryStore, truth: &Truth) -> MemoryStore {
    let n = copy.position().ok().flatten().map_or(0, |position| position.n);
    match sabotage {
        Some(Sabotage::SnapshotAhead) => truth.at(n.saturating_sub(3)).map_or(copy, |older| older.snapshot()),
        _ => copy,
    }
}

/// A copy that does not do what it is told.
struct BrokenCopy {
    copy: Arc<MemoryStore>,
    sabotage: Sabotage,
    records: AtomicU64,
}

/// Every so many records are left out by [`Sabotage::SkipRecords`].
const SKIPPED_EVERY: u64 = 7;

impl Foldable for BrokenCopy {
    fn position(&self) -> Result<Option<CopyPosition>, StoreError> {
        self.copy.position()
    }

    fn set_position(&self, position: &CopyPosition) -> Result<(), StoreError> {
        self.copy.set_position(position)
    }

    fn commit_via(
        &self,
        batches: &[Batch],
        place: &mut dyn FnMut(&[RecordedChange]) -> Placement,
    ) -> Result<CommitVia, StoreError> {
        if self.sabotage != Sabotage::ForgetLead {
            return self.copy.commit_via(batches, place);
        }
        let mut batches = batches.to_vec();
        for batch in &mut batches {
            batch.checks.retain(|check| {
                !matches!(check, Check::Equals { key, .. } | Check::Absent { key, .. } if key == LEAD_KEY)
            });
        }
        self.copy.commit_via(&batches, place)
    }

    fn apply(&self, records: &[FoldRecord]) -> Result<(), FoldError> {
        if self.sabotage != Sabotage::SkipRecords {
            return self.copy.apply(records);
        }
        let mut records = records.to_vec();
        for record in &mut records {
            // The lead must stay visible: who writes is not the question here.
            let is_lead = record
                .changes
                .iter()
                .any(|change| matches!(change, RecordedChange::Put { key, .. } if key == LEAD_KEY));
            if !is_lead && self.records.fetch_add(1, Relaxed) % SKIPPED_EVERY == SKIPPED_EVERY - 1 {
                record.changes.clear();
            }
        }
        self.copy.apply(&records)
    }
}

impl Store for BrokenCopy {
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        self.copy.commit(batches)
    }

    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError> {
        self.copy.maintain(rows_max)
    }

    fn scan(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, StoreError> {
        let mut rows = self.copy.scan(space, range, rows_max)?;
        // Comparisons read whole tables: they see what is there.
        if self.sabotage == Sabotage::ForgetLead && rows_max == 1 {
            rows.retain(|row| row.key != LEAD_KEY);
        }
        Ok(rows)
    }

    fn read(&self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<Page, StoreError> {
        self.copy.read(stream, from, limit)
    }

    fn seek(&self, stream: &Stream, ts: Timestamp) -> Result<Offset, StoreError> {
        self.copy.seek(stream, ts)
    }

    fn retention_start(&self, stream: &Stream, rule: Retention) -> Result<Offset, StoreError> {
        self.copy.retention_start(stream, rule)
    }

    fn streams(&self) -> Result<Vec<StreamBounds>, StoreError> {
        self.copy.streams()
    }

    fn watch(&self, after: CommitNumber, commits_max: usize) -> Result<Changes, StoreError> {
        self.copy.watch(after, commits_max)
    }

    fn claim_serving(&self) -> Result<(), StoreError> {
        self.copy.claim_serving()
    }

    fn is_served_elsewhere(&self) -> bool {
        self.copy.is_served_elsewhere()
    }
}
