//! The store in memory: the reference for what every other adapter must do, and the body of simulated disks.
//!
//! Nothing outlives the process. To model a crash, a simulation takes a [`MemoryStore::snapshot`] at the moment of the
//! last sync and carries on from it.

mod apply;
mod feed;
mod fold;
mod ids;
mod log;
mod tables;
mod tx_view;

use std::collections::BTreeMap;
use std::fmt;

use millrace_model::{
    BATCH_BYTES_MAX, Batch, KeyRange, Offset, Outcome, Page, ReadLimit, Row, Space, Stream, Timestamp,
};
use parking_lot::Mutex;

use self::feed::CommitFeed;
use self::fold::Recording;
use self::ids::RecentIds;
use self::log::StreamLog;
use self::tables::Tables;
use crate::error::StoreError;
use crate::fold::CopyPosition;
use crate::port::{Changes, CommitNumber, Maintained, Retention, Store, StreamBounds};

/// How many ids brought by clients are remembered for dedupe by default; the oldest are forgotten first.
const DEDUPE_IDS_MAX: usize = 1_000_000;

/// A single mutex guards everything: critical sections are short, and a reference should be simple.
pub struct MemoryStore {
    state: Mutex<MemoryState>,
}

#[derive(Clone)]
pub(crate) struct MemoryState {
    logs: BTreeMap<Stream, StreamLog>,
    /// How many streams were ever made.
    streams_created: u64,
    tables: Tables,
    ids: RecentIds,
    feed: CommitFeed,
    /// How far a journal is folded into this store, if it is a copy.
    position: Option<CopyPosition>,
    /// Collects the changes of a commit that goes through a journal.
    recording: Option<Recording>,
}

impl MemoryStore {
    pub fn new() -> MemoryStore {
        MemoryStore::with_dedupe_ids_max(DEDUPE_IDS_MAX)
    }

    pub fn with_dedupe_ids_max(dedupe_ids_max: usize) -> MemoryStore {
        let state = MemoryState {
            logs: BTreeMap::new(),
            streams_created: 0,
            tables: Tables::default(),
            ids: RecentIds::new(dedupe_ids_max),
            feed: CommitFeed::default(),
            position: None,
            recording: None,
        };
        MemoryStore { state: Mutex::new(state) }
    }

    /// Returns an independent store that begins with the present content. Events are shared, everything else is copied.
    pub fn snapshot(&self) -> MemoryStore {
        MemoryStore { state: Mutex::new(self.state.lock().clone()) }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl Clone for MemoryStore {
    fn clone(&self) -> Self {
        self.snapshot()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("MemoryStore")
            .field("streams", &state.logs.len())
            .field("rows", &state.tables.len())
            .field("last", &state.feed.last())
            .finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        refuse_too_large(batches, BATCH_BYTES_MAX)?;
        Ok(self.state.lock().commit(batches))
    }

    fn read(&self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<Page, StoreError> {
        Ok(self.state.lock().logs.get(stream).map_or_else(Page::default, |log| log.read(from, limit)))
    }

    fn seek(&self, stream: &Stream, ts: Timestamp) -> Result<Offset, StoreError> {
        Ok(self.state.lock().logs.get(stream).map_or(Offset::FIRST, |log| log.seek(ts)))
    }

    fn retention_start(&self, stream: &Stream, rule: Retention) -> Result<Offset, StoreError> {
        Ok(self.state.lock().logs.get(stream).map_or(Offset::FIRST, |log| log.retention_start(rule)))
    }

    fn scan(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, StoreError> {
        Ok(self.state.lock().tables.rows(space, range, rows_max))
    }

    fn streams(&self) -> Result<Vec<StreamBounds>, StoreError> {
        Ok(self.state.lock().logs.iter().map(|(stream, log)| log.bounds(stream)).collect())
    }

    fn watch(&self, after: CommitNumber, commits_max: usize) -> Result<Changes, StoreError> {
        Ok(self.state.lock().feed.after(after, commits_max))
    }

    fn maintain(&self, _rows_max: usize) -> Result<Maintained, StoreError> {
        Ok(Maintained::default())
    }

    /// Nobody else can have this store: a snapshot is another one.
    fn claim_serving(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn is_served_elsewhere(&self) -> bool {
        false
    }
}

fn refuse_too_large(batches: &[Batch], max: usize) -> Result<(), StoreError> {
    match batches.iter().map(Batch::bytes).find(|bytes| *bytes > max) {
        Some(bytes) => Err(StoreError::TooLarge { bytes, max }),
        None => Ok(()),
    }
}
