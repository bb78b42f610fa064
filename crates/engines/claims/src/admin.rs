//! Batches of people: pausing, switching, forgetting, replaying. Used without a worker.

pub(crate) mod manage;
pub(crate) mod replay;
