//! Reads and decodes the next records of the journal while the last ones are folded: reading waits for the engine, folding
//! for this machine.

use std::sync::mpsc::{self, SyncSender};
use std::thread;

use bytes::Bytes;
use millrace_journal::{Journal, JournalReadLimit};
use millrace_store::Tip;

use crate::record::{self, Record, RecordError};

/// How much is read from the journal at once.
pub(crate) const READ: JournalReadLimit = JournalReadLimit { records_max: 1_000, bytes_max: 4 << 20 };
/// From this many bytes on it is worth a thread to read on meanwhile.
const READ_AHEAD_BYTES: usize = 256 << 10;
/// How many answers of the engine wait for their folding.
const READS_AHEAD: usize = 2;

/// A record as the engine returned it, decoded.
pub(crate) struct ReadRecord {
    pub(crate) n: u64,
    /// The size of the record's bytes.
    pub(crate) bytes: usize,
    pub(crate) decoded: Result<(Record, Tip), RecordError>,
}

pub(crate) fn decode_all(found: Vec<(u64, Bytes)>) -> Vec<ReadRecord> {
    let records = found.into_iter();
    records.map(|(n, bytes)| ReadRecord { n, bytes: bytes.len(), decoded: record::decode(&bytes) }).collect()
}

/// Why [`fold_and_read`] has read no further.
pub(crate) enum ReadEnd {
    /// Too few records were there to read on, or the engine did not answer: the caller reads itself.
    ReadYourself,
    /// The engine has no further record.
    AtEnd,
}

/// Folds records with `fold`, and then all that follow, which are read meanwhile.
pub(crate) fn fold_and_read<E>(
    journal: &dyn Journal,
    found: Vec<ReadRecord>,
    mut fold: impl FnMut(Vec<ReadRecord>) -> Result<(), E>,
) -> Result<ReadEnd, E> {
    let bytes: usize = found.iter().map(|record| record.bytes).sum();
    let next = found.last().map(|last| last.n + 1).filter(|_| bytes >= READ_AHEAD_BYTES);
    let Some(next) = next else { return fold(found).map(|()| ReadEnd::ReadYourself) };
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel(READS_AHEAD);
        let read = move || read_on(journal, next, &sender);
        let reading = thread::Builder::new().name("journal-read".into()).spawn_scoped(scope, read);
        fold(found)?;
        if reading.is_err() {
            return Ok(ReadEnd::ReadYourself);
        }
        // Ends when the reader has nothing more to give. After an error of `fold` the receiver is gone, and so the reader
        // ends after the request under way.
        for found in receiver {
            if found.is_empty() {
                return Ok(ReadEnd::AtEnd);
            }
            fold(found)?;
        }
        Ok(ReadEnd::ReadYourself)
    })
}

/// Reads until there is no further record, the engine does not answer, or nobody wants more.
fn read_on(journal: &dyn Journal, from: u64, to: &SyncSender<Vec<ReadRecord>>) {
    let mut next = from;
    // A failed request is made again, and noted, by the caller.
    while let Ok(found) = journal.read(next, READ) {
        let Some((last, _)) = found.last() else {
            let _ = to.send(Vec::new());
            return;
        };
        next = last + 1;
        if to.send(decode_all(found)).is_err() {
            return;
        }
    }
}
