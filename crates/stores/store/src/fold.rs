//! Copies of a shared store: stores that a journal is folded into.
//!
//! A shared store's truth is a journal of records in an engine outside (crate `journal`). Every server keeps a *copy*,
//! an ordinary store, reads only from there, and resolves its commits there. A record holds what a commit came to
//! ([`RecordedChange`]), never what was asked for: nobody but the writer of a record ever resolves it, so servers cannot
//! disagree about it.

mod change;
mod copies;
mod position;

use millrace_model::{Batch, Outcome};

pub use change::{FoldRecord, RecordedChange, RecordedEvent};
pub use copies::{Copies, CopyBounds};
pub use position::{CopyPosition, Tip};

use crate::error::StoreError;
use crate::port::Store;

/// A store that can be the copy of a journal.
///
/// The caller makes sure that one thread at a time calls `commit_via`, `apply` and `set_position`, and that nobody
/// commits to a copy in any other way.
pub trait Foldable: Store {
    /// Returns how far the copy has folded its journal; `None` for a store that is not a copy.
    fn position(&self) -> Result<Option<CopyPosition>, StoreError>;

    /// Makes this store the copy of a journal at a position. Everything in the store is taken to be what the journal
    /// holds up to there.
    fn set_position(&self, position: &CopyPosition) -> Result<(), StoreError>;

    /// Resolves batches like [`Store::commit`], and calls `place` with all changes before anything is kept. Placing the
    /// changes in the journal is what commits them; the copy only follows.
    ///
    /// # Errors
    ///
    /// An error says that `place` was not called or did not place the changes. [`StoreError::Unreadable`] says that the
    /// copy is damaged: nothing may be decided by it, and it has to be made anew.
    fn commit_via(
        &self,
        batches: &[Batch],
        place: &mut dyn FnMut(&[RecordedChange]) -> Placement,
    ) -> Result<CommitVia, StoreError>;

    /// Returns which damage a read, a commit or the housekeeping of this handle has met, if any. The copy has to be made
    /// anew then: an error that is not of damage, such as a full disk, is not told here.
    fn damage(&self) -> Option<String> {
        None
    }

    /// Brings everything that was committed into the place that [`Copies::snapshot`] copies. A copy may keep its newest
    /// commits in memory: the journal has them.
    fn settle(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Applies records of the journal in one transaction. They must follow the copy's position without a gap.
    fn apply(&self, records: &[FoldRecord]) -> Result<(), FoldError>;
}

/// The end of a call of `place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The changes are in the journal, and this is the position behind them.
    Placed(CopyPosition),
    /// There was nothing to place, and the outcomes hold.
    NothingToPlace,
    /// The changes are not in the journal, as far as is known. The copy stays as it was.
    NotPlaced,
}

/// The end of [`Foldable::commit_via`].
#[derive(Debug)]
pub enum CommitVia {
    /// The commit happened. If the copy could not follow, it must be closed; it catches up when it is opened again.
    Committed {
        outcomes: Vec<Outcome>,
        copied: Result<(), StoreError>,
    },
    NotPlaced,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoldError {
    Store(StoreError),
    /// A record does not fit the copy: one of them is not of this history. The text says what differs.
    Mismatch(String),
}

impl From<StoreError> for FoldError {
    fn from(error: StoreError) -> FoldError {
        FoldError::Store(error)
    }
}

impl std::fmt::Display for FoldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FoldError::Store(error) => error.fmt(f),
            FoldError::Mismatch(text) => write!(f, "a record of the journal does not fit the copy: {text}"),
        }
    }
}

impl std::error::Error for FoldError {}
