//! The errors of a store, grouped by what the caller has to do next.

use std::error::Error;
use std::fmt;

use crate::failure_cause::FailureCause;

/// A commit may be tried again after [`StoreError::NoSpace`] and [`StoreError::Busy`], which say that nothing was
/// written. After [`StoreError::Poisoned`] the store does not write again until it is reopened, because what the disk
/// holds is no longer known.
///
/// [`Error::source`] returns the error of the database or of the system that this error was made from, if there was
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// A write or sync failed, now or earlier, in this or another process that has the store open. Reopen the store.
    Poisoned(FailureCause),
    /// The disk was full before the commit was complete. The commit was rolled back and left nothing: keep its batches
    /// and try again when there is room.
    NoSpace(FailureCause),
    /// Another program holds a lock on the store. Nothing was written: keep the batches and try again.
    Busy(FailureCause),
    /// A read failed; the store may still be fine. Try again later.
    Unreadable(FailureCause),
    /// The store cannot be opened as it is; the text says what to do.
    Unusable(FailureCause),
    /// Another process has the store; the text says which. Stop that process, or use another store.
    InUse(FailureCause),
    /// Another process has migrated the store to another schema version. Nothing was written, and this handle will never
    /// write again; restart with that build.
    Outdated { found: usize, known: usize },
    /// Another server leads the store: this handle may not write any more. Nothing was written; the text says which
    /// server leads.
    Deposed(FailureCause),
    /// The store was closed while the commit was under way, so it is not known whether it happened. Open the store
    /// again and look.
    Closed(FailureCause),
    /// A batch is larger than the size that every store must accept. Nothing of the commit was written.
    TooLarge { bytes: usize, max: usize },
}

impl StoreError {
    /// Returns whether the commit is known to have left nothing.
    pub fn wrote_nothing(&self) -> bool {
        match self {
            StoreError::NoSpace(_)
            | StoreError::Busy(_)
            | StoreError::Deposed(_)
            | StoreError::Outdated { .. }
            | StoreError::TooLarge { .. } => true,
            StoreError::Poisoned(_)
            | StoreError::Closed(_)
            | StoreError::Unreadable(_)
            | StoreError::Unusable(_)
            | StoreError::InUse(_) => false,
        }
    }

    /// Returns whether the commit has left nothing for a reason that may pass, so that the same batches are worth
    /// committing again. An error that stays, such as [`StoreError::Outdated`], is none of these.
    pub fn may_be_retried(&self) -> bool {
        matches!(self, StoreError::NoSpace(_) | StoreError::Busy(_))
    }

    fn cause(&self) -> Option<&FailureCause> {
        match self {
            StoreError::Poisoned(cause)
            | StoreError::NoSpace(cause)
            | StoreError::Busy(cause)
            | StoreError::Unreadable(cause)
            | StoreError::Unusable(cause)
            | StoreError::InUse(cause)
            | StoreError::Deposed(cause)
            | StoreError::Closed(cause) => Some(cause),
            StoreError::Outdated { .. } | StoreError::TooLarge { .. } => None,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Poisoned(cause) => {
                write!(f, "the store stopped writing after a failed write: {cause}")
            }
            StoreError::NoSpace(cause) => {
                write!(f, "the disk of the store is full, nothing was written: {cause}")
            }
            StoreError::Busy(cause) => {
                write!(f, "another program has locked the store, nothing was written: {cause}")
            }
            StoreError::Unreadable(cause) => write!(f, "the store could not be read: {cause}"),
            StoreError::Unusable(cause) => write!(f, "the store cannot be opened: {cause}"),
            StoreError::InUse(cause) => write!(f, "the store is in use: {cause}"),
            StoreError::Deposed(cause) => {
                write!(f, "this server does not lead the store, nothing was written: {cause}")
            }
            StoreError::Closed(cause) => write!(f, "the store was closed during a commit: {cause}"),
            StoreError::Outdated { found, known } => write!(
                f,
                "the store has schema version {found} and this process writes {known}: another version of Millrace has \
                 opened it. Nothing was written; restart this process with that version"
            ),
            StoreError::TooLarge { bytes, max } => {
                write!(f, "a batch of {bytes} bytes is over the limit of {max}")
            }
        }
    }
}

// Written by hand: `thiserror` would return the shared pointer as the source, and `downcast_ref` would not find the
// error in it.
impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause().and_then(FailureCause::source)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io;

    use super::*;

    #[test]
    fn the_source_is_kept_and_the_text_is_shown_once() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = StoreError::NoSpace(FailureCause::new(format!("store.db: {full}"), full));
        assert_eq!(
            error.to_string(),
            "the disk of the store is full, nothing was written: store.db: no storage space"
        );
        let source = error.source().unwrap().downcast_ref::<io::Error>().unwrap();
        assert_eq!(source.kind(), io::ErrorKind::StorageFull);
        assert!(StoreError::Busy("a reason without an error".into()).source().is_none());
    }

    #[test]
    fn an_error_that_says_nothing_was_written_knows_it() {
        let text = || FailureCause::from("x");
        let all = [
            StoreError::Poisoned(text()),
            StoreError::NoSpace(text()),
            StoreError::Busy(text()),
            StoreError::Unreadable(text()),
            StoreError::Unusable(text()),
            StoreError::InUse(text()),
            StoreError::Deposed(text()),
            StoreError::Closed(text()),
            StoreError::Outdated { found: 2, known: 1 },
            StoreError::TooLarge { bytes: 2, max: 1 },
        ];
        for error in all {
            let says_so = error.to_string().to_lowercase().contains("nothing was written");
            let is_too_large = matches!(error, StoreError::TooLarge { .. });
            assert_eq!(error.wrote_nothing(), says_so || is_too_large, "{error}");
            assert!(error.wrote_nothing() || !error.may_be_retried(), "{error}");
        }
        assert!(!StoreError::Outdated { found: 2, known: 1 }.may_be_retried(), "it would wait for ever");
    }
}
