//! What can go wrong in a store, by what the caller has to do next.

/// No variant is retryable by the writer: a store that failed to write once does not write again until it is
/// reopened, because what the disk holds is no longer known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A write or sync failed, now or earlier, here or in another process on the same store. Reopen it.
    #[error("the store stopped writing after a failed write: {0}")]
    Poisoned(String),
    /// A read failed; the store may still be fine. Try again, later.
    #[error("the store could not be read: {0}")]
    Unreadable(String),
    /// The store cannot be opened as it is; the text says what to do.
    #[error("the store cannot be opened: {0}")]
    Unusable(String),
    /// Somebody else has it, and the text says who. Stop them, or use another store.
    #[error("the store is in use: {0}")]
    InUse(String),
    /// One batch is larger than every store must take. Nothing of the commit was written.
    #[error("a batch of {bytes} bytes is over the limit of {max}")]
    TooLarge { bytes: usize, max: usize },
}
