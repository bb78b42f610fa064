//! Folds the records of others into the copy, and notices a journal that is not the one the copy was made of.

use std::sync::atomic::Ordering::Relaxed;

use millrace_journal::{HeadGuard, JournalReadLimit};
use millrace_store::{CopyPosition, FailureCause, FoldError, FoldRecord, RecordedChange, StoreError, Tip};

use crate::commit::Stop;
use crate::handle::{SharedHandle, Turn};
use crate::read_ahead::{READ, ReadRecord, decode_all, fold_and_read};
use crate::record::{self, RecordError};

/// How much is applied to the copy in one transaction.
const EVENTS_PER_TRANSACTION: usize = 4_096;
const BYTES_PER_TRANSACTION: usize = 4 << 20;

/// Reads one record.
pub(crate) const ONE: JournalReadLimit = JournalReadLimit { records_max: 1, bytes_max: 1 };

impl SharedHandle {
    /// Folds everything that is new. Returns how many records that was. Waits as long as the engine is away.
    pub(crate) fn catch_up(&self, turn: &mut Turn) -> Result<u64, StoreError> {
        let began_n = turn.position.n;
        loop {
            let next = turn.position.n + 1;
            let read = self.read_until_known(next, READ).map(decode_all).map_err(Stop::End);
            let found = read
                .and_then(|found| self.refuse_deleted(next).map(|()| found))
                .map_err(|stop| self.stop(stop))?;
            self.reachable();
            if found.is_empty() {
                return Ok(turn.position.n - began_n);
            }
            fold_and_read(&*self.journal, found, |found| {
                self.refuse_deleted(turn.position.n + 1).map_err(|stop| self.stop(stop))?;
                self.fold(turn, found)
            })?;
        }
    }

    /// Folds records that were read.
    pub(crate) fn fold(&self, turn: &mut Turn, found: Vec<ReadRecord>) -> Result<(), StoreError> {
        let mut group = Group::default();
        let mut position = turn.position;
        for read in found {
            let bytes = read.bytes;
            let (record, term) = match self.chained(position, read) {
                Ok(chained) => chained,
                Err(error) => {
                    // Everything before the record that cannot be used is folded.
                    self.apply(turn, &mut group)?;
                    self.publish(turn);
                    return Err(error);
                }
            };
            position = record.position;
            if !group.takes(&record, bytes) {
                self.apply(turn, &mut group)?;
            }
            group.push(record, term, bytes);
        }
        self.apply(turn, &mut group)?;
        self.publish(turn);
        Ok(())
    }

    /// Returns the record and its term, if it follows the position.
    fn chained(&self, position: CopyPosition, read: ReadRecord) -> Result<(FoldRecord, u64), StoreError> {
        let n = read.n;
        if n != position.n + 1 {
            return Err(self.stop(self.gap(position, n)));
        }
        let (record, tip) = read.decoded.map_err(|error| self.end(unreadable_record(n, &error)))?;
        if record.head.n != n || record.head.prev != position.tip {
            return Err(self.stop(self.unchained(position, &record.head.prev)));
        }
        let position = CopyPosition { n, tip, ..position };
        Ok((FoldRecord { position, changes: record.changes }, record.head.term))
    }

    /// Returns why record `n` follows the copy's position although there should be others between.
    fn gap(&self, position: CopyPosition, n: u64) -> Stop {
        // The manifest that this handle knows may be older than the trim.
        if let Err(stop) = self.read_manifest_until_known() {
            return stop;
        }
        let trimmed_to = self.manifest.lock().manifest.trimmed_to;
        if position.n < trimmed_to {
            return Stop::Stale(format!(
                "the journal begins at record {n} now, and the copy stands at {}",
                position.n
            ));
        }
        let text = format!(
            "records {} to {} are missing in the journal, and nobody has trimmed it so far: the engine has lost them. \
             Restore the engine's data",
            position.n + 1,
            n - 1
        );
        Stop::End(StoreError::Unusable(FailureCause::from(text)))
    }

    /// Returns why the next record does not follow the record at the copy's position: the copy has another history than
    /// the journal, or the journal itself is broken.
    fn unchained(&self, position: CopyPosition, prev: &Tip) -> Stop {
        if let Err(stop) = self.read_manifest_until_known() {
            return stop;
        }
        let n = position.n;
        let is_trimmed = || n > 0 && n <= self.manifest.lock().manifest.trimmed_to;
        let stale = || {
            let text = format!("the journal is trimmed, and its record {} does not follow the copy", n + 1);
            Stop::Stale(text)
        };
        if is_trimmed() {
            return stale();
        }
        match self.verify_record(n, position.tip) {
            Err(stop) => stop,
            // Trimmed while this handle looked: whether the record was the same is not known any more.
            Ok(()) if is_trimmed() => stale(),
            Ok(()) => {
                let text = format!(
                    "record {} of the journal follows a record with tip {prev}, and record {n} has tip {}: the journal is \
                     broken there. Restore the engine's data",
                    n + 1,
                    position.tip
                );
                Stop::End(StoreError::Unusable(FailureCause::from(text)))
            }
        }
    }

    fn apply(&self, turn: &mut Turn, group: &mut Group) -> Result<(), StoreError> {
        let Some(last) = group.records.last().map(|record| record.position) else { return Ok(()) };
        match self.copy.apply(&group.records) {
            Ok(()) => {}
            Err(FoldError::Mismatch(text)) => {
                let why = format!("records {} to {}: {text}", turn.position.n + 1, last.n);
                return Err(self.condemn("mismatched", &why));
            }
            Err(FoldError::Store(StoreError::Unreadable(cause))) => {
                return Err(self.condemn_damaged(&cause.to_string()));
            }
            Err(FoldError::Store(error)) if error.may_be_retried() => return Err(error),
            Err(FoldError::Store(error)) => return Err(self.end_without_copy(error)),
        }
        for record in &group.records {
            turn.lead.observe(&record.changes);
        }
        turn.position = last;
        turn.term_seen = turn.term_seen.max(group.term);
        turn.records_seen += group.records.len() as u64;
        turn.bytes_seen += group.bytes as u64;
        self.heard(turn);
        *group = Group::default();
        Ok(())
    }

    /// Verifies that the journal has record `n`, behind which one is to be placed, if a request has failed since the last
    /// time. Not needed where the engine compares the record before a new one itself.
    pub(crate) fn verify_after_absence(&self, n: u64, tip: Tip) -> Result<(), Stop> {
        // Cleared first: a request that fails meanwhile, also on another thread, asks for another look.
        if self.fitness.head_guard != HeadGuard::Manifest || !self.was_away.swap(false, Relaxed) {
            return Ok(());
        }
        let verified = self.verify_record(n, tip);
        if verified.is_err() {
            self.was_away.store(true, Relaxed);
        }
        verified
    }

    /// Checks that the record at the copy's position is the journal's: an engine that failed over, or was set back, may
    /// have lost its newest records.
    pub(crate) fn verify_position(&self, turn: &Turn) -> Result<(), StoreError> {
        self.verify_record(turn.position.n, turn.position.tip).map_err(|stop| self.stop(stop))
    }

    /// Checks that the journal has record `n` with this tip, or had it before it was trimmed.
    pub(crate) fn verify_record(&self, n: u64, tip: Tip) -> Result<(), Stop> {
        if n == 0 {
            return Ok(());
        }
        let found = self.read_until_known(n, ONE).map_err(Stop::End)?;
        let found = match found.first().filter(|(at, _)| *at == n) {
            Some((_, bytes)) => match record::decode_head(bytes) {
                Ok((_, found)) if found == tip => return Ok(()),
                Ok((_, found)) => found.to_string(),
                Err(error) => return Err(Stop::End(unreadable_record(n, &error))),
            },
            None => "missing".to_owned(),
        };
        // Records up to a snapshot may be deleted, and a record under such a number may be one that a sleeping writer
        // placed for nobody.
        self.read_manifest_until_known()?;
        let known = self.manifest.lock();
        let is_in_snapshot = known.manifest.snapshot.as_ref().is_some_and(|snapshot| snapshot.is_at(n, tip));
        if n <= known.manifest.trimmed_to || is_in_snapshot {
            Ok(())
        } else {
            Err(Stop::Diverged { n, found })
        }
    }

    /// The engine came back shorter or different: it failed over without its newest records, or was set back.
    pub(crate) fn diverged(&self, n: u64, found: &str) -> StoreError {
        self.with_status(|status| status.lost_records += 1);
        let why = format!(
            "the engine has lost records that were placed: the copy has record {n}, and that of the journal is {found}"
        );
        self.condemn("diverged", &why)
    }
}

/// Returns the error of a record that no server of this version can fold.
fn unreadable_record(n: u64, error: &RecordError) -> StoreError {
    match error {
        RecordError::NewerFormat { .. } => {
            let text = format!("record {n} of the journal cannot be read: {error}");
            StoreError::Unusable(FailureCause::from(text))
        }
        RecordError::Damaged(_) => {
            let text = format!(
                "record {n} of the journal cannot be read: {error}. Nothing behind it can be applied; restore the engine's \
                 data"
            );
            StoreError::Poisoned(FailureCause::from(text))
        }
    }
}

/// Records that are applied in one transaction.
#[derive(Default)]
struct Group {
    records: Vec<FoldRecord>,
    events: usize,
    bytes: usize,
    term: u64,
    is_closed: bool,
}

impl Group {
    fn takes(&self, record: &FoldRecord, bytes: usize) -> bool {
        self.records.is_empty()
            || !self.is_closed
                && record.changes.iter().all(RecordedChange::is_mergeable)
                && self.events + events_of(record) <= EVENTS_PER_TRANSACTION
                && self.bytes + bytes <= BYTES_PER_TRANSACTION
    }

    fn push(&mut self, record: FoldRecord, term: u64, bytes: usize) {
        self.term = self.term.max(term);
        self.events += events_of(&record);
        self.bytes += bytes;
        self.is_closed = !record.changes.iter().all(RecordedChange::is_mergeable);
        self.records.push(record);
    }
}

fn events_of(record: &FoldRecord) -> usize {
    record.changes.iter().map(RecordedChange::events).sum()
}
