//! What symbolic operations become, decided once for all adapters: a claim finds its events, a reconcile its changes.
//!
//! Everything is found through [`Look`], which an adapter implements on its open transaction, and answered as plain puts
//! and deletes that the adapter then applies. What is not here: appends, whose numbers belong to the adapter.

mod claim;
mod delay;
mod due;
mod events;
mod forget;
mod off;
mod ordered;
mod plain;
mod reconcile;

pub use claim::{LOOK_MAX, Taken, claim};
pub use delay::{delay, holder, keep_incarnation, waiting};
pub use due::{DUE_MAX, FOREIGN_MAX};
pub use forget::forget_topic;
pub use ordered::OPEN_MAX;
pub use reconcile::{Reconciled, reconcile};

use bytes::Bytes;
use millrace_model::{Offset, Space, Stream, TopicKey};

use crate::port::{KeyRange, Page, ReadLimit, Row};

/// A transaction that is being written, as its symbolic operations see it.
///
/// Rows are as the operations before left them. Events are those of earlier commits: [`Looked::next`] is where they end,
/// and whatever `read` shows from there on is not looked at.
pub trait Look {
    type Error;

    fn get(&mut self, space: Space, key: &str) -> Result<Option<Bytes>, Self::Error>;

    /// Rows in key order, like [`crate::Store::scan`].
    fn scan(&mut self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, Self::Error>;

    /// Like [`crate::Store::read`]. Damage is reported in the page, and set aside by the adapter.
    fn read(&mut self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<Page, Self::Error>;

    /// The streams of a topic in order of partition, without those that an operation before dropped.
    fn streams(&mut self, topic: &TopicKey) -> Result<Vec<Looked>, Self::Error>;
}

/// A stream as a symbolic operation sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    pub stream: Stream,
    /// Tells it from earlier streams of the same name; part of the keys in [`Space::OffPriority`].
    pub made: u64,
    pub start: Offset,
    /// The end of what earlier commits appended.
    pub next: Offset,
}
