//! Writing: actions, the shared commit that writes them, and how batches are built.

pub(crate) mod action;
pub(crate) mod action_queue;
pub(crate) mod batch_builder;
pub(crate) mod event_writer;
pub(crate) mod follow_up;
pub(crate) mod shared_commit;
pub(crate) mod too_large;
