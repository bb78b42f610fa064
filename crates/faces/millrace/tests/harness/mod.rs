//! A harness ("harness") for tests of state: the memory store, and commits as a session makes them.

// Each test file uses only some of these functions.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace::{IntoIntents, State, StateCommit, StateError};
use millrace_session::model::{Batch, Check, Done, Namespace, Op, Outcome, Reconcile, Timestamp};
use millrace_state::Declared;
use millrace_state::{Pending, SchemaBook};
use millrace_store::{MemoryStore, Store, StoreError};

pub(crate) struct Harness {
    pub(crate) state: State,
    pub(crate) book: SchemaBook,
    pub(crate) pending: Pending,
    store: Arc<dyn Store>,
    commits: u64,
}

impl Harness {
    pub(crate) fn new() -> Harness {
        Harness::on(Arc::new(MemoryStore::default()))
    }

    pub(crate) fn on(store: Arc<dyn Store>) -> Harness {
        let state = State::new(store.clone(), Namespace::default());
        Harness { state, book: SchemaBook::default(), pending: Pending::default(), store, commits: 0 }
    }

    /// Returns another program's view of the same store.
    pub(crate) fn another(&self) -> Harness {
        Harness::on(self.store.clone())
    }

    pub(crate) fn ensure<How>(&mut self, state: impl IntoIntents<How>) {
        self.declare(state.into_intents().unwrap());
    }

    pub(crate) fn declare(&mut self, declared: Declared) {
        self.pending.push(declared).unwrap();
    }

    pub(crate) fn commit(&mut self) -> Option<StateCommit> {
        self.try_commit(&[]).unwrap()
    }

    /// Commits as a session does: admits the schemas, commits, and after a refusal reads the schemas and tries again.
    pub(crate) fn try_commit(&mut self, meta: &[(&str, &str)]) -> Result<Option<StateCommit>, StateError> {
        let meta: BTreeMap<String, String> =
            meta.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        loop {
            let admitted = self.book.admit(&self.state, &self.pending.resolve(&self.state)?)?;
            let namespace = self.state.namespace().clone();
            let (intents, events) = (admitted.intents, Vec::new());
            let mut ops = admitted.ops;
            ops.push(Op::Reconcile(Reconcile { namespace, meta: meta.clone(), intents, events }));
            match self.write(admitted.checks, ops)? {
                Outcome::Done(Done { state, .. }) => {
                    self.pending.clear();
                    return Ok(state);
                }
                Outcome::Refused(_) => self.book.forget(),
            }
        }
    }

    pub(crate) fn write(&mut self, checks: Vec<Check>, ops: Vec<Op>) -> Result<Outcome, StoreError> {
        self.commits += 1;
        let (nonce, now) = (self.commits, Timestamp(1_000 * self.commits));
        let batch = Batch { nonce, now, checks, ops, ..Batch::default() };
        Ok(self.store.commit(&[batch])?.remove(0))
    }
}
