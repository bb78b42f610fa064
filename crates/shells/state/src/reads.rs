//! The reads of a handler or a transaction, remembered so that its commit can check that they still hold.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{HeadRow, Intent, Namespace, StateCommit, keys};
use parking_lot::Mutex;

/// How many identities a run remembers having read, and how many bytes of their rows. Beyond that the oldest are
/// forgotten, and from then on an identity that is not remembered must be read again before it is declared
/// ([`super::StateError::ReadForgotten`]): it may have been among the forgotten ones.
pub const READS_MAX: usize = 100_000;
pub const READ_BYTES_MAX: usize = 64 << 20;

/// The reads of a run, shared by the clones of its [`super::State`] and the queries made from it.
#[derive(Debug, Default)]
pub(crate) struct Reads(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// By the identity's key: its row as it was first read, `None` = there was none. The first read counts:
    /// declarations may follow from it, and a later read that differs would be a conflict.
    rows: BTreeMap<String, (u64, Option<Bytes>)>,
    /// The keys by the number of their read, the oldest first.
    order: BTreeMap<u64, String>,
    numbers: u64,
    bytes: usize,
    forgot: bool,
}

/// Whether an identity was read.
pub(crate) enum Known {
    Read(Option<Bytes>),
    NotRead,
    /// The identity may have been read.
    Forgotten,
}

impl Reads {
    pub(crate) fn note(&self, key: &str, row: Option<&Bytes>) {
        self.0.lock().insert(key, row.cloned());
    }

    pub(crate) fn known(&self, key: &str) -> Known {
        let reads = self.0.lock();
        match reads.rows.get(key) {
            Some((_, row)) => Known::Read(row.clone()),
            None if reads.forgot => Known::Forgotten,
            None => Known::NotRead,
        }
    }

    /// Notes that the commit succeeded: identities that it checked are now as they were declared.
    pub(crate) fn committed(
        &self,
        namespace: &Namespace,
        intents: &[Intent],
        checked: &BTreeMap<String, Option<Bytes>>,
        commit: Option<StateCommit>,
    ) {
        let Some(commit) = commit else { return };
        let mut reads = self.0.lock();
        for intent in intents {
            let key = keys::identity(namespace, &intent.identity);
            let Some(before) = checked.get(&key) else { continue };
            reads.forget(&key);
            reads.insert(&key, row_after(&key, before.as_ref(), intent, commit));
        }
    }

    /// Forgets all reads, because everything is to be read again.
    pub(crate) fn clear(&self) {
        *self.0.lock() = Inner::default();
    }
}

impl Inner {
    fn insert(&mut self, key: &str, row: Option<Bytes>) {
        if self.rows.contains_key(key) {
            return;
        }
        self.numbers += 1;
        self.bytes += size(key, row.as_ref());
        self.rows.insert(key.to_owned(), (self.numbers, row));
        self.order.insert(self.numbers, key.to_owned());
        while self.rows.len() > READS_MAX || (self.bytes > READ_BYTES_MAX && self.rows.len() > 1) {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.forget(&oldest);
            self.forgot = true;
        }
    }

    fn forget(&mut self, key: &str) {
        if let Some((number, row)) = self.rows.remove(key) {
            self.order.remove(&number);
            self.bytes -= size(key, row.as_ref());
        }
    }
}

fn size(key: &str, row: Option<&Bytes>) -> usize {
    2 * key.len() + row.map_or(0, Bytes::len)
}

/// Returns the row as the store's reconcile writes it (`resolve/src/reconcile.rs`): unchanged if nothing differs.
fn row_after(key: &str, before: Option<&Bytes>, intent: &Intent, commit: StateCommit) -> Option<Bytes> {
    let fields = intent.fields.as_ref()?.as_str();
    let head = before.and_then(|row| HeadRow::decode(key, row).ok());
    if head.is_some_and(|head| head.fields == fields && head.schema == intent.schema) {
        return before.cloned();
    }
    Some(HeadRow { fields: fields.to_owned(), commit, schema: intent.schema }.encode())
}
