//! What can go wrong with state, by what the caller has to do next.

use millrace_store::StoreError;

use crate::typed::CanonicalError;

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("`{type_name}` cannot be stored: {source}")]
    Unwritable { type_name: &'static str, source: CanonicalError },
    #[error("a `{type_name}` has an empty {role}: give it at least one character")]
    EmptyKey { type_name: String, role: &'static str },
    #[error("a key of a `{type_name}` has {bytes} bytes, at most {max} are allowed")]
    KeyTooLong { type_name: String, bytes: usize, max: usize },
    #[error(transparent)]
    Store(#[from] StoreError),
}
