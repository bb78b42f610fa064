//! The thread of the loop: its start, its rounds, its queues, its commits.

pub(crate) mod commits;
pub(crate) mod counts;
pub(crate) mod inbox;
pub(crate) mod local_queue;
pub(crate) mod notes;
pub(crate) mod pause;
pub(crate) mod run;
pub(crate) mod shell;
pub(crate) mod start;
