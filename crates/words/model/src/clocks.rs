//! Time: the wall clock, the monotonic clock, and clocks that outlive a process.

pub(crate) mod boot;
pub(crate) mod elapsed;
pub(crate) mod steady;
pub(crate) mod time;
