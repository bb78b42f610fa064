//! The tables of a store, and the bytes inside their rows.

pub(crate) mod codec;
pub(crate) mod loc;
pub(crate) mod row;
pub(crate) mod schema;
pub(crate) mod tables;
