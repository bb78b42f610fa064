//! Folds the records of others into the copy, and notices a journal that is not the one the copy was made of.

use bytes::Bytes;
use millrace_journal::JournalReadLimit;
use millrace_store::{CopyPosition, FailureCause, FoldError, FoldRecord, RecordedChange, StoreError};

use crate::record::{self, RecordError};
use crate::store::{SharedHandle, Turn};

/// How much is read from the journal at once.
const READ: JournalReadLimit = JournalReadLimit { records_max: 1_000, bytes_max: 16 << 20 };
/// How much is applied to the copy in one transaction.
const EVENTS_PER_TRANSACTION: usize = 4_096;
const BYTES_PER_TRANSACTION: usize = 4 << 20;

impl SharedHandle {
    /// Folds everything that is new. Returns how many records that was. Waits as long as the engine is away.
    pub(crate) fn catch_up(&self, turn: &mut Turn) -> Result<u64, StoreError> {
        let mut folded = 0;
        loop {
            let found = match self.read_until_known(turn.position.n + 1, READ) {
                Ok(found) => found,
                Err(error @ StoreError::Closed(_)) => return Err(error),
                Err(error) => return Err(self.end(turn, error)),
            };
            if found.is_empty() {
                return Ok(folded);
            }
            folded += self.fold(turn, &found)?;
        }
    }

    /// Folds records that were read, and returns how many.
    pub(crate) fn fold(&self, turn: &mut Turn, found: &[(u64, Bytes)]) -> Result<u64, StoreError> {
        let mut group = Group::default();
        let mut position = turn.position;
        for (n, bytes) in found {
            let record = self.decode(turn, position, *n, bytes)?;
            position = record.position;
            if !group.takes(&record, bytes.len()) {
                self.apply(turn, &mut group)?;
            }
            group.push(record, bytes.len());
        }
        self.apply(turn, &mut group)?;
        self.publish(turn);
        Ok(found.len() as u64)
    }

    fn decode(
        &self,
        turn: &mut Turn,
        position: CopyPosition,
        n: u64,
        bytes: &Bytes,
    ) -> Result<FoldRecord, StoreError> {
        if n != position.n + 1 {
            let why = format!("the journal begins at record {n} now, and the copy stands at {}", position.n);
            return Err(self.condemn(turn, "stale", &why));
        }
        let (record, tip) = match record::decode(bytes) {
            Ok(decoded) => decoded,
            Err(error @ RecordError::NewerFormat { .. }) => {
                let text = format!("record {n} of the journal cannot be read: {error}");
                return Err(self.end(turn, StoreError::Unusable(FailureCause::from(text))));
            }
            Err(error) => {
                let text = format!(
                    "record {n} of the journal cannot be read: {error}. Nothing behind it can be applied; restore the \
                     engine's data"
                );
                return Err(self.end(turn, StoreError::Poisoned(FailureCause::from(text))));
            }
        };
        if record.head.n != n || record.head.prev != position.tip {
            return Err(self.diverged(turn, position.n, &record.head.prev.to_string()));
        }
        let position = CopyPosition { n, tip, ..position };
        Ok(FoldRecord { position, changes: record.changes })
    }

    fn apply(&self, turn: &mut Turn, group: &mut Group) -> Result<(), StoreError> {
        let Some(last) = group.records.last().map(|record| record.position) else { return Ok(()) };
        match self.copy.apply(&group.records) {
            Ok(()) => {}
            Err(FoldError::Mismatch(text)) => {
                let why = format!("records {} to {}: {text}", turn.position.n + 1, last.n);
                return Err(self.condemn(turn, "mismatched", &why));
            }
            Err(FoldError::Store(StoreError::Unreadable(cause))) => {
                return Err(self.condemn(turn, "damaged", &cause.to_string()));
            }
            Err(FoldError::Store(error)) if error.may_be_retried() => return Err(error),
            Err(FoldError::Store(error)) => return Err(self.end(turn, error)),
        }
        for record in &group.records {
            turn.lead.observe(&record.changes);
        }
        turn.position = last;
        turn.news_at_ms = self.clock.mono_ms();
        turn.bytes_since_snapshot += group.bytes as u64;
        *group = Group::default();
        Ok(())
    }

    /// Checks that the record at the copy's position is the journal's: after a placing that failed although nobody has
    /// the number, the engine may have lost its newest records.
    pub(crate) fn verify_position(&self, turn: &mut Turn) -> Result<(), StoreError> {
        let position = turn.position;
        if position.n == 0 {
            return Ok(());
        }
        let limit = JournalReadLimit { records_max: 1, bytes_max: 1 };
        let found = match self.read_until_known(position.n, limit) {
            Ok(found) => found,
            Err(error) => return Err(self.end(turn, error)),
        };
        match found.first() {
            Some((n, bytes)) if *n == position.n => match record::decode_head(bytes) {
                Ok((_, tip)) if tip == position.tip => Ok(()),
                Ok((_, tip)) => Err(self.diverged(turn, position.n, &tip.to_string())),
                Err(error) => {
                    let text = format!("record {n} of the journal cannot be read: {error}");
                    Err(self.end(turn, StoreError::Poisoned(FailureCause::from(text))))
                }
            },
            Some((n, _)) => {
                let why =
                    format!("the journal begins at record {n} now, and the copy stands at {}", position.n);
                Err(self.condemn(turn, "stale", &why))
            }
            // Records up to a snapshot may be deleted, also the one at the copy's position.
            None if position.n <= self.manifest.lock().manifest.trimmed_to => Ok(()),
            None => Err(self.diverged(turn, position.n, "missing")),
        }
    }

    /// The engine came back shorter or different: it failed over without its newest records, or was set back.
    fn diverged(&self, turn: &mut Turn, n: u64, found: &str) -> StoreError {
        self.with_status(|status| status.lost_records += 1);
        tracing::error!(
            n,
            ours = %turn.position.tip,
            found,
            "the engine has lost records that were placed: the copy has record {n}, the journal has another or none"
        );
        let why = format!(
            "the engine has lost records: the copy stands at {n} with tip {}, the journal's is {found}",
            turn.position.tip
        );
        self.condemn(turn, "diverged", &why)
    }
}

/// Records that are applied in one transaction.
#[derive(Default)]
struct Group {
    records: Vec<FoldRecord>,
    events: usize,
    bytes: usize,
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

    fn push(&mut self, record: FoldRecord, bytes: usize) {
        self.events += events_of(&record);
        self.bytes += bytes;
        self.is_closed = !record.changes.iter().all(RecordedChange::is_mergeable);
        self.records.push(record);
    }
}

fn events_of(record: &FoldRecord) -> usize {
    record.changes.iter().map(RecordedChange::events).sum()
}
