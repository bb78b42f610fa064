//! Batches and the rows of the small tables.

pub(crate) mod batch;
pub(crate) mod digits;
pub(crate) mod finding;
pub(crate) mod record;
pub(crate) mod text_in_row;
