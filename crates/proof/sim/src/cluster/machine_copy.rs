//! The copy of a store on a simulated machine, as a handle has it: a store in memory whose writes may fail, and which a
//! sabotage makes wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use millrace_model::{Batch, Check, Offset, Outcome, Space, Stream, Timestamp};
use millrace_store::{
    Changes, CommitNumber, CommitVia, CopyPosition, FoldError, FoldRecord, Foldable, KeyRange, Maintained,
    MemoryStore, Page, Placement, ReadLimit, RecordedChange, Retention, Row, Store, StoreError, StreamBounds,
};
use millrace_store_journal::LEAD_KEY;

use super::Writer;
use super::copies::CopyFault;
use super::hub::Hub;
use super::sabotage::Sabotage;
use crate::fault::Fault;

/// Every so many records are left out by [`Sabotage::SkipRecords`].
const SKIPPED_EVERY: u64 = 7;

pub(super) struct MachineCopy {
    hub: Arc<Hub>,
    writer: Writer,
    sabotage: Option<Sabotage>,
    copy: Arc<MemoryStore>,
    records: AtomicU64,
}

impl MachineCopy {
    pub(super) fn new(
        hub: Arc<Hub>,
        writer: Writer,
        sabotage: Option<Sabotage>,
        copy: Arc<MemoryStore>,
    ) -> MachineCopy {
        MachineCopy { hub, writer, sabotage, copy, records: AtomicU64::new(0) }
    }

    /// Returns the fault of this write, if one is due that can happen here.
    fn fault(&self, can_happen: impl FnOnce(CopyFault) -> bool) -> Option<CopyFault> {
        let mut state = self.hub.lock();
        if !state.is_alive(self.writer) || state.calm {
            return None;
        }
        let disk = &mut state.servers[self.writer.server].disk;
        let fault = disk.fault.take_if(|fault| can_happen(*fault))?;
        disk.has_failed = true;
        state.note(&format!("the copy of {} fails: {fault:?}", self.writer));
        state.faults.add(Fault::CopyFailed);
        Some(fault)
    }
}

fn full() -> StoreError {
    StoreError::NoSpace("no room, as the seed wants".into())
}

fn damaged() -> StoreError {
    StoreError::Unreadable("a damaged row, as the seed wants".into())
}

impl Foldable for MachineCopy {
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
        let mut batches = batches.to_vec();
        if self.sabotage == Some(Sabotage::ForgetLead) {
            for batch in &mut batches {
                batch.checks.retain(|check| {
                    !matches!(check, Check::Equals { key, .. } | Check::Absent { key, .. } if key == LEAD_KEY)
                });
            }
        }
        match self.fault(|_| true) {
            None => self.copy.commit_via(&batches, place),
            Some(CopyFault::Full) => Err(full()),
            Some(CopyFault::Damaged) => Err(damaged()),
            Some(CopyFault::FullAfterPlacing) => {
                // Nothing of the commit stays in the copy, whatever becomes of its record.
                match self.copy.snapshot().commit_via(&batches, place)? {
                    CommitVia::Committed { outcomes, .. } => {
                        Ok(CommitVia::Committed { outcomes, copied: Err(full()) })
                    }
                    CommitVia::NotPlaced => Ok(CommitVia::NotPlaced),
                }
            }
        }
    }

    fn apply(&self, records: &[FoldRecord]) -> Result<(), FoldError> {
        match self.fault(|fault| fault != CopyFault::FullAfterPlacing) {
            Some(CopyFault::Damaged) => return Err(damaged().into()),
            Some(_) => return Err(full().into()),
            None => {}
        }
        if self.sabotage != Some(Sabotage::SkipRecords) {
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

impl Store for MachineCopy {
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        self.copy.commit(batches)
    }

    fn scan(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, StoreError> {
        let mut rows = self.copy.scan(space, range, rows_max)?;
        // Comparisons read whole tables: they see what is there.
        if self.sabotage == Some(Sabotage::ForgetLead) && rows_max == 1 {
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

    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError> {
        self.copy.maintain(rows_max)
    }

    fn claim_serving(&self) -> Result<(), StoreError> {
        self.copy.claim_serving()
    }

    fn is_served_elsewhere(&self) -> bool {
        self.copy.is_served_elsewhere()
    }
}
