//! Runs of handlers: their start, their commits, their leases and timeouts.

pub(crate) mod last_commit;
pub(crate) mod marks;
pub(crate) mod run;
pub(crate) mod suspects;
pub(crate) mod timeout;
