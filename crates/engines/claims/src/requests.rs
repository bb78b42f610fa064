//! Everything that the worker has asked of its shell: effects that wait to be drained, and tokens that wait for their
//! answer.

use std::collections::BTreeMap;

use millrace_model::{Batch, DueBy, StateCommit};

use crate::interface::effect::{Effect, Note};
use crate::interface::error::CommitError;
use crate::interface::input::{ReadQuery, RunId, Token};
use crate::lifecycle::namespace_rows::NamespaceRead;
use crate::running::handler_commit::HandlerCommit;
use crate::upkeep::delayed::{DueMove, DueRead};

#[derive(Debug, Default)]
pub(crate) struct Requests {
    effects: Vec<Effect>,
    commits: BTreeMap<Token, PendingCommit>,
    reads: BTreeMap<Token, PendingRead>,
    last_token: u64,
}

/// The purpose of a commit that is under way.
#[derive(Debug)]
pub(crate) enum PendingCommit {
    Shared,
    Handler(Box<HandlerCommit>),
    Sweep,
    DueMove(DueBy, Vec<DueMove>),
}

/// The purpose of a read that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingRead {
    Namespace(NamespaceRead),
    /// Reads the first open claim of this handler, for its due time.
    FirstClaim(usize),
    /// Reads the claims of this handler that end too far ahead.
    Stranded(usize),
    Sweep,
    Due(DueBy, DueRead),
}

impl Requests {
    pub(crate) fn drain(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn note(&mut self, note: Note) {
        self.effects.push(Effect::Note(note));
    }

    /// Answers a handler's commit.
    pub(crate) fn answer(&mut self, run: RunId, result: Result<Option<StateCommit>, CommitError>) {
        self.effects.push(Effect::Answer { run, result });
    }

    pub(crate) fn commit(&mut self, pending: PendingCommit, batch: Batch) {
        let token = self.next_token();
        self.commits.insert(token, pending);
        self.effects.push(Effect::Commit { token, batch });
    }

    pub(crate) fn read(&mut self, pending: PendingRead, query: ReadQuery) {
        let token = self.next_token();
        self.reads.insert(token, pending);
        self.effects.push(Effect::Read { token, query });
    }

    fn next_token(&mut self) -> Token {
        self.last_token += 1;
        Token(self.last_token)
    }

    /// Returns the purpose of a commit that has ended. `None`: the token is not of a commit of this worker, or the
    /// worker has given up all of them because the store failed.
    pub(crate) fn commit_ended(&mut self, token: Token) -> Option<PendingCommit> {
        self.commits.remove(&token)
    }

    /// Returns the purpose of a read that has ended; `None` as in [`Requests::commit_ended`].
    pub(crate) fn read_ended(&mut self, token: Token) -> Option<PendingRead> {
        self.reads.remove(&token)
    }

    pub(crate) fn is_reading(&self, what: PendingRead) -> bool {
        self.reads.values().any(|pending| *pending == what)
    }

    /// Whether no token waits for its answer.
    pub(crate) fn is_quiet(&self) -> bool {
        self.commits.is_empty() && self.reads.is_empty()
    }

    /// Gives up everything that is under way. Returns the runs whose commits are lost.
    pub(crate) fn give_up(&mut self) -> Vec<RunId> {
        self.reads.clear();
        let lost = std::mem::take(&mut self.commits).into_values().filter_map(|pending| match pending {
            PendingCommit::Handler(commit) => Some(commit.run()),
            _ => None,
        });
        lost.collect()
    }

    pub(crate) fn pending_commits(&self) -> impl Iterator<Item = &PendingCommit> {
        self.commits.values()
    }

    pub(crate) fn pending_reads(&self) -> impl Iterator<Item = &PendingRead> {
        self.reads.values()
    }
}
