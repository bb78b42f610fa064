//! The errors of a store, grouped by what the caller has to do next.

/// A commit may be tried again after [`StoreError::NoSpace`] and [`StoreError::Busy`], which say that nothing was
/// written. After [`StoreError::Poisoned`] the store does not write again until it is reopened, because what the disk
/// holds is no longer known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A write or sync failed, now or earlier, in this or another process that has the store open. Reopen the store.
    #[error("the store stopped writing after a failed write: {0}")]
    Poisoned(String),
    /// The disk was full before the commit was complete. The commit was rolled back and left nothing: keep its batches
    /// and try again when there is room.
    #[error("the disk of the store is full, nothing was written: {0}")]
    NoSpace(String),
    /// Another program holds a lock on the store. Nothing was written: keep the batches and try again.
    #[error("another program has locked the store, nothing was written: {0}")]
    Busy(String),
    /// A read failed; the store may still be fine. Try again later.
    #[error("the store could not be read: {0}")]
    Unreadable(String),
    /// The store cannot be opened as it is; the text says what to do.
    #[error("the store cannot be opened: {0}")]
    Unusable(String),
    /// Another process has the store; the text says which. Stop that process, or use another store.
    #[error("the store is in use: {0}")]
    InUse(String),
    /// Another process has migrated the store to another schema version. Nothing was written; restart with that build.
    #[error(
        "the store has schema version {found} and this process writes {known}: another version of Millrace has opened it. \
         Nothing was written; restart this process with that version"
    )]
    Outdated { found: usize, known: usize },
    /// A batch is larger than the size that every store must accept. Nothing of the commit was written.
    #[error("a batch of {bytes} bytes is over the limit of {max}")]
    TooLarge { bytes: usize, max: usize },
}

impl StoreError {
    /// Returns whether the commit is known to have left nothing, so that the same batches may be committed again.
    pub fn wrote_nothing(&self) -> bool {
        matches!(self, StoreError::NoSpace(_) | StoreError::Busy(_) | StoreError::TooLarge { .. })
    }
}
