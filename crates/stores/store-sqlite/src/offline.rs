//! Copies of a store, made and put in place without a handle on it.

pub(crate) mod backup;
pub(crate) mod restore;
