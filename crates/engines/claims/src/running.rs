//! Runs of handlers: their start, their commits, their leases and timeouts.

pub(crate) mod handler_commit;
pub(crate) mod iteration;
pub(crate) mod last_commit;
pub(crate) mod leases;
pub(crate) mod marks;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod start_runs;
pub(crate) mod suspects;
pub(crate) mod timeout;
