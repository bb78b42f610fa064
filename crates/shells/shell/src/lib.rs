//! The kit that every shell uses: code that drives an engine without knowing which.
//!
//! - `batch_writer`: whole batches of parts beside the engine, through the same group commit.
//! - `clock`: the system's clocks.
//! - `commit_queue`, `group_commit`: batches of many callers share one sync.
//! - `housekeeping`: when the store's own upkeep is due.
//! - `row_writer`: rows of parts beside the bus, through the same group commit.
//! - `watcher`: commits of other processes.
//! - `work_queue`: work for threads.
//!
//! Nothing here knows an engine, an adapter of the store or a socket, so a program that only runs handlers links
//! neither the bus nor its shell (`millrace-broker`).
//!
//! Start with [`GroupCommit`].

mod batch_writer;
mod clock;
mod commit_queue;
mod group_commit;
mod housekeeping;
mod row_writer;
mod watcher;
mod work_queue;

pub use batch_writer::BatchWriter;
pub use clock::SystemClock;
pub use commit_queue::{CommitLimits, CommitQueue, QueueClosed};
pub use group_commit::{CommitReceiver, Committed, GroupCommit, Wrote};
pub use housekeeping::{Housekeeping, Slice};
pub use row_writer::{RowCommits, RowReply, RowWrite, RowWriteError, RowWriter};
pub use watcher::{Poll, Watcher, changed_streams};
pub use work_queue::WorkQueue;
