//! Which events each handler holds, and when it claims more.

pub(crate) mod handler;
pub(crate) mod pause;
pub(crate) mod rate;
pub(crate) mod stranded;
