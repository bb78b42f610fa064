//! Which events each handler holds, and when it claims more.

pub(crate) mod claims;
pub(crate) mod first_claim;
pub(crate) mod handler;
pub(crate) mod handlers;
pub(crate) mod pause;
pub(crate) mod rate;
pub(crate) mod stranded;
