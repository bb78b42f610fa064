//! The engine inside a commit: decides which events a claim takes and what a reconcile changes, once for all adapters.
//!
//! A batch may hold symbolic operations, which say what is wanted and not which rows change. An adapter resolves them on its
//! open transaction: the functions here read through [`TxView`], which the adapter implements, and return plain puts and
//! deletes, which the adapter applies.
//!
//! Appends are not here: their offsets belong to the adapter. Start with [`claim`].

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
use millrace_model::{KeyRange, Offset, Page, ReadLimit, Row, Space, Stream, TopicKey};

/// A transaction that is being written, as its symbolic operations see it.
///
/// Rows are as the operations before left them. Events are those of earlier commits: [`StreamView::next`] is where they end,
/// and whatever `read` shows from there on is not looked at.
pub trait TxView {
    type Error;

    fn get(&mut self, space: Space, key: &str) -> Result<Option<Bytes>, Self::Error>;

    /// Rows in key order, like `Store::scan`.
    fn scan(&mut self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, Self::Error>;

    /// Like `Store::read`. Damage is reported in the page, and set aside by the adapter.
    fn read(&mut self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<Page, Self::Error>;

    /// The streams of a topic in order of partition, without those that an operation before dropped.
    fn streams(&mut self, topic: &TopicKey) -> Result<Vec<StreamView>, Self::Error>;
}

/// A stream as a symbolic operation sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamView {
    pub stream: Stream,
    /// Tells it from earlier streams of the same name; part of the keys in [`Space::OffPriority`].
    pub made: u64,
    pub start: Offset,
    /// The end of what earlier commits appended.
    pub next: Offset,
}
