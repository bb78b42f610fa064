//! Events on their way into the log: published, delayed, or appended by other processes.

pub(crate) mod due;
pub(crate) mod foreign_appends;
pub(crate) mod publish;
