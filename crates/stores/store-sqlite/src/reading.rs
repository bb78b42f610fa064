//! Reads: the index says where events are, pooled connections read their rows.

pub(crate) mod index;
pub(crate) mod pool;
pub(crate) mod read;
pub(crate) mod seek;
