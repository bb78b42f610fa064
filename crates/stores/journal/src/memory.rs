//! The journal in memory: the reference for every other engine, and the engine of simulations and tests.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::error::JournalError;
use crate::port::{
    Fitness, HeadGuard, Journal, JournalReadLimit, ManifestRead, ManifestVersion, PartName, Placed, Placing,
};

/// Handles share a journal by sharing the value, in an `Arc`. Nothing outlives the process.
#[derive(Debug, Default)]
pub struct MemoryJournal {
    state: Mutex<MemoryJournalState>,
}

#[derive(Debug, Default)]
struct MemoryJournalState {
    records: BTreeMap<u64, Bytes>,
    manifest: Option<(u64, Bytes)>,
    parts: BTreeMap<PartName, Bytes>,
}

impl MemoryJournal {
    pub fn new() -> MemoryJournal {
        MemoryJournal::default()
    }

    /// Forgets all records from number `n` on, like an engine that failed over and lost its newest writes.
    pub fn lose_from(&self, n: u64) {
        self.state.lock().records.split_off(&n);
    }
}

impl Journal for MemoryJournal {
    fn check(&self) -> Result<Fitness, JournalError> {
        let engine = "memory".to_owned();
        Ok(Fitness { engine, is_replicated: false, head_guard: HeadGuard::Manifest, remarks: Vec::new() })
    }

    fn place(&self, placing: &Placing<'_>) -> Result<Placed, JournalError> {
        let records = &mut self.state.lock().records;
        if records.contains_key(&placing.n) {
            return Ok(Placed::Taken);
        }
        records.insert(placing.n, Bytes::copy_from_slice(placing.record));
        Ok(Placed::Yes)
    }

    fn read(&self, from: u64, limit: JournalReadLimit) -> Result<Vec<(u64, Bytes)>, JournalError> {
        let state = self.state.lock();
        let mut found: Vec<(u64, Bytes)> = Vec::new();
        let mut bytes = 0;
        for (n, record) in state.records.range(from..).take(limit.records_max) {
            bytes += record.len();
            let is_gap = found.last().is_some_and(|(last, _)| last + 1 != *n);
            if is_gap || bytes > limit.bytes_max && !found.is_empty() {
                break;
            }
            found.push((*n, record.clone()));
        }
        Ok(found)
    }

    fn manifest(&self) -> Result<Option<ManifestRead>, JournalError> {
        let state = self.state.lock();
        Ok(state.manifest.as_ref().map(|(version, bytes)| ManifestRead {
            bytes: bytes.clone(),
            version: ManifestVersion(version.to_string()),
            engine_time_ms: None,
        }))
    }

    fn set_manifest(&self, new: &[u8], was: Option<&ManifestVersion>) -> Result<bool, JournalError> {
        let mut state = self.state.lock();
        let standing = state.manifest.as_ref().map(|(version, _)| *version);
        if standing.map(|version| version.to_string()) != was.map(|version| version.0.clone()) {
            return Ok(false);
        }
        state.manifest = Some((standing.unwrap_or(0) + 1, Bytes::copy_from_slice(new)));
        Ok(true)
    }

    fn put_part(&self, name: &PartName, bytes: &[u8]) -> Result<(), JournalError> {
        self.state.lock().parts.insert(name.clone(), Bytes::copy_from_slice(bytes));
        Ok(())
    }

    fn get_part(&self, name: &PartName) -> Result<Option<Bytes>, JournalError> {
        Ok(self.state.lock().parts.get(name).cloned())
    }

    fn parts(&self) -> Result<Vec<PartName>, JournalError> {
        Ok(self.state.lock().parts.keys().cloned().collect())
    }

    fn delete_part(&self, name: &PartName) -> Result<(), JournalError> {
        self.state.lock().parts.remove(name);
        Ok(())
    }

    fn delete_below(&self, n: u64) -> Result<(), JournalError> {
        let records = &mut self.state.lock().records;
        *records = records.split_off(&n);
        Ok(())
    }
}
