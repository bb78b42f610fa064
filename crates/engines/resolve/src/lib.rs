//! The engine inside a commit: decides which events a claim takes and what a reconcile changes, once for all adapters.
//!
//! A batch may hold symbolic operations, which say what is wanted and not which rows change. An adapter resolves them
//! on its open transaction: the functions here read through [`TxView`], which the adapter implements, and return plain
//! puts and deletes, which the adapter applies.
//!
//! Appends are not here: their offsets belong to the adapter. Start with [`claim`].

mod claim;
mod delay;
mod due;
mod events;
mod forget;
mod ordered;
mod plain;
mod priority_lanes;
mod reconcile;

pub use claim::{PASSED_OVER_MAX, Taken, claim};
pub use delay::{delay, holder, keep_incarnation, waiting};
pub use due::{DUE_MAX, FOREIGN_MAX};
pub use forget::forget_topic;
pub use ordered::OPEN_MAX;
pub use reconcile::{Reconciled, reconcile};

use bytes::Bytes;
use millrace_model::{KeyRange, Offset, Page, ReadLimit, Row, Space, Stream, TopicKey};

/// An open write transaction, as symbolic operations see it.
///
/// Rows are as the earlier operations left them. Events are only those of earlier commits: they end at
/// [`StreamView::next`], and events that `read` returns from there on are ignored.
pub trait TxView {
    type Error;

    fn get(&mut self, space: Space, key: &str) -> Result<Option<Bytes>, Self::Error>;

    /// Returns rows in key order, like `Store::scan`.
    fn scan(&mut self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, Self::Error>;

    /// Returns events like `Store::read`. The page reports damage, and the adapter sets it aside.
    fn read(&mut self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<Page, Self::Error>;

    /// Returns the streams of a topic in order of partition, without those that an earlier operation dropped.
    fn streams(&mut self, topic: &TopicKey) -> Result<Vec<StreamView>, Self::Error>;
}

/// A stream as a symbolic operation sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamView {
    pub stream: Stream,
    /// Tells this stream from earlier ones of the same name; part of the keys in [`Space::OffPriority`].
    pub incarnation: u64,
    pub start: Offset,
    /// The end of the events that earlier commits appended.
    pub next: Offset,
}
