//! Opening a store: with its index to use it, or its file alone to read it.

pub(crate) mod load;
pub(crate) mod open;
pub(crate) mod read_only;
