//! The port itself: the trait that engines implement, and the types of its methods.

use std::fmt;

use bytes::Bytes;
use millrace_store::Tip;

use crate::error::JournalError;

/// All methods may be called from any thread and may block; every request has a deadline of its own, after which the
/// outcome is [`JournalError::Unknown`]. No method retries: the caller does.
pub trait Journal: Send + Sync + 'static {
    /// Connects, makes what the engine needs (schema, collections) if it is missing, and looks whether the engine keeps
    /// the promises of this port. Called once before anything else.
    ///
    /// # Errors
    ///
    /// [`JournalError::Unfit`] for an engine that must not be used, [`JournalError::Refused`] for missing rights,
    /// [`JournalError::Unknown`] while the engine cannot be reached.
    fn check(&self) -> Result<Fitness, JournalError>;

    /// Does the same for a caller that has a copy of the store: nothing that is missing is made where it would be in the
    /// way of a backup that people restore.
    ///
    /// # Errors
    ///
    /// As for `check`, and [`JournalError::Refused`] if the place of the store is gone.
    fn check_existing(&self) -> Result<Fitness, JournalError> {
        self.check()
    }

    /// Places a record if its number is free. Returns only when the record is as durable as the engine makes it.
    fn place(&self, placing: &Placing<'_>) -> Result<Placed, JournalError>;

    /// Returns records in order, without gaps, from number `from` on. The first one may have a higher number if older
    /// ones were deleted. Never returns a record that could still disappear (an engine reads with majority, or from the
    /// primary). An empty answer means that no record with this or a higher number was there when the engine looked. With
    /// [`HeadGuard::Manifest`] a handle that has seen record `from - 1` may also get an empty answer if `from` was
    /// deleted meanwhile: the caller re-reads the manifest before it believes the absence. (Object storage would pay for
    /// a listing with every idle read to tell the two apart.)
    fn read(&self, from: u64, limit: JournalReadLimit) -> Result<Vec<(u64, Bytes)>, JournalError>;

    /// Returns the manifest, a small document that is replaced as a whole. `None` if there is none yet.
    fn manifest(&self) -> Result<Option<ManifestRead>, JournalError>;

    /// Replaces the manifest if it still has the version `was`; `None` = if there is none. Returns whether it did.
    fn set_manifest(&self, new: &[u8], was: Option<&ManifestVersion>) -> Result<bool, JournalError>;

    /// Stores a part of a snapshot under a name that was never used before. Storing the same part again is fine.
    fn put_part(&self, name: &PartName, bytes: &[u8]) -> Result<(), JournalError>;

    /// Returns a part; `None` if there is none of this name.
    fn get_part(&self, name: &PartName) -> Result<Option<Bytes>, JournalError>;

    /// Returns the names of all parts, in no particular order.
    fn parts(&self) -> Result<Vec<PartName>, JournalError>;

    /// Deletes a part. Deleting a missing part is fine.
    fn delete_part(&self, name: &PartName) -> Result<(), JournalError>;

    /// Deletes all records with a number below `n`. Repeating it is fine. May delete fewer (an engine that drops whole
    /// partitions deletes the rest later), never others.
    fn delete_below(&self, n: u64) -> Result<(), JournalError>;

    /// Returns the latest time of the engine's own clock in any answer so far, in milliseconds since 1970; `None` if the
    /// engine tells none. Shows a process that slept, whose own clocks stood still (see [`HeadGuard::Manifest`]).
    fn engine_time_ms(&self) -> Option<u64> {
        None
    }

    /// Returns whether placed records still are on more than one machine, for an engine whose [`Fitness`] promised it and
    /// that may be changed while it runs. Asked now and then; an engine that notices in [`Journal::place`] need not
    /// answer here.
    fn is_still_replicated(&self) -> Result<bool, JournalError> {
        Ok(true)
    }

    /// Returns waiting rows of the outbox in the order of their ids, from the one behind `after` on, at most `rows_max`.
    /// Rows may appear before others that were seen: transactions end in another order than they begin. An engine
    /// without an outbox has none.
    fn outbox(&self, _after: Option<OutboxId>, _rows_max: usize) -> Result<Vec<OutboxRow>, JournalError> {
        Ok(Vec::new())
    }

    /// Deletes rows of the outbox whose events the store has already.
    fn delete_outbox(&self, _ids: &[OutboxId]) -> Result<(), JournalError> {
        Ok(())
    }

    /// Moves rows of the outbox that can never be published out of the way, with the reason, where people find them.
    fn refuse_outbox(&self, _refused: &[OutboxRefusal]) -> Result<(), JournalError> {
        Ok(())
    }
}

/// A record to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Placing<'a> {
    /// From 1.
    pub n: u64,
    /// The tip of record `n - 1`.
    pub prev: Tip,
    /// The tip of this record.
    pub tip: Tip,
    pub record: &'a [u8],
    /// Rows of the outbox whose events are in this record: deleted if and only if the record is placed.
    pub settles: &'a [OutboxId],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// This call placed the record.
    Yes,
    /// Nothing was placed: the number is taken, or the journal does not end at `n - 1` with the tip `prev`. Also the
    /// answer to a repeated call whose first answer was lost; the caller finds out by reading.
    Taken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalReadLimit {
    pub records_max: usize,
    /// Reached by the last record at the earliest: one record is always returned.
    pub bytes_max: usize,
}

/// The promises of an engine that passed [`Journal::check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fitness {
    /// The engine and its version, for log lines and `doctor`.
    pub engine: String,
    /// Whether a placed record is on more than one machine.
    pub is_replicated: bool,
    pub head_guard: HeadGuard,
    /// Remarks that an operator should know, such as a setting that the engine was given for our connection.
    pub remarks: Vec<String>,
}

/// How a number is kept from being used again after its record was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadGuard {
    /// The engine compares with the newest number: a deleted number is never free again.
    Engine,
    /// Nothing: a writer that slept could place a deleted number again. The caller re-reads the manifest (see
    /// `store-journal`) before it believes a placing.
    Manifest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestRead {
    pub bytes: Bytes,
    pub version: ManifestVersion,
    /// The engine's own clock when it answered, in milliseconds since 1970, if it tells.
    pub engine_time_ms: Option<u64>,
}

/// Identifies one state of the manifest: an entity tag, or a number as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestVersion(pub String);

/// The name of a part of a snapshot: digits, lower-case letters, `-` and one `/`, at most 100 characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartName(pub String);

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The key of a row of the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutboxId(pub i64);

/// An event that an application has published inside a transaction of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRow {
    pub id: OutboxId,
    pub topic: String,
    pub key: Option<String>,
    /// A JSON object of strings.
    pub headers: Option<String>,
    /// JSON.
    pub payload: String,
    pub event_id: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRefusal {
    pub id: OutboxId,
    pub reason: String,
}
