//! Actions that wait for the next shared commit.

use std::collections::VecDeque;

use millrace_model::{BATCH_BYTES_MAX, Mono, Now};

use crate::commits::action::Action;

/// Actions in one shared commit; further ones wait for the next.
const ACTIONS_MAX: usize = 1024;
/// Bytes of actions in one shared commit; the rest of the batch is for its claims. A larger action is committed without
/// other actions, and with as many claims as still fit.
pub(crate) const ACTION_BYTES_MAX: usize = BATCH_BYTES_MAX / 2;

#[derive(Debug, Default)]
pub(crate) struct ActionQueue {
    waiting: VecDeque<Action>,
    /// When the oldest action stops waiting for a claim to share its commit with; `None` if nothing waits.
    commit_at: Option<Mono>,
}

impl ActionQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Action> {
        self.waiting.iter()
    }

    pub(crate) fn commit_at(&self) -> Option<Mono> {
        self.commit_at
    }

    pub(crate) fn is_due(&self, now: Now) -> bool {
        self.commit_at.is_some_and(|at| at <= now.mono)
    }

    /// Adds an action that is to be committed as soon as possible.
    pub(crate) fn push(&mut self, now: Now, action: Action) {
        self.waiting.push_back(action);
        self.commit_at = Some(now.mono);
    }

    /// Adds an action that may wait until `commit_at`.
    pub(crate) fn push_lingering(&mut self, commit_at: Mono, action: Action) {
        self.waiting.push_back(action);
        self.commit_at.get_or_insert(commit_at);
    }

    /// Puts actions back to the front, in their order.
    pub(crate) fn requeue(&mut self, now: Now, actions: Vec<Action>) {
        if !actions.is_empty() {
            self.commit_at = Some(now.mono);
        }
        actions.into_iter().rev().for_each(|action| self.waiting.push_front(action));
    }

    /// Removes as many actions as one commit may hold. Also returns their size in bytes.
    pub(crate) fn take_next(&mut self, now: Now) -> (Vec<Action>, usize) {
        let (mut actions, mut bytes) = (Vec::new(), 0);
        while let Some(action) = self.waiting.front() {
            let with_it = bytes + action.bytes();
            if !actions.is_empty() && (actions.len() >= ACTIONS_MAX || with_it > ACTION_BYTES_MAX) {
                break;
            }
            bytes = with_it;
            actions.extend(self.waiting.pop_front());
        }
        self.commit_at = (!self.waiting.is_empty()).then_some(now.mono);
        (actions, bytes)
    }
}
