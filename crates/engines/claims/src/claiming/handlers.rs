//! The handlers of a worker, and in which order they get what they share.

use std::ops::{Index, IndexMut, Range};

use millrace_model::{Now, TopicKey};

use crate::claiming::handler::Handler;

/// The handlers in the order in which they were declared: an index into it names a handler to the shell.
#[derive(Debug)]
pub(crate) struct Handlers {
    all: Vec<Handler>,
    /// The indices, sorted by priority, then by id.
    by_priority: Vec<usize>,
    /// The position in `by_priority` whose handler starts the next event: handlers take turns.
    next: usize,
}

impl Handlers {
    pub(crate) fn new(all: Vec<Handler>) -> Handlers {
        let mut by_priority: Vec<usize> = (0..all.len()).collect();
        by_priority.sort_by_key(|at| (std::cmp::Reverse(all[*at].spec().priority), all[*at].id().clone()));
        Handlers { all, by_priority, next: 0 }
    }

    pub(crate) fn indices(&self) -> Range<usize> {
        0..self.all.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Handler> {
        self.all.iter()
    }

    pub(crate) fn by_priority(&self) -> impl Iterator<Item = usize> {
        self.by_priority.iter().copied()
    }

    /// Returns the indices by priority, beginning with the handler that is next.
    pub(crate) fn in_rotation(&self) -> impl Iterator<Item = usize> {
        let (before, after) = self.by_priority.split_at(self.next);
        after.iter().chain(before).copied()
    }

    /// Returns the first handler in rotation that `may_start`; the one after it is next then.
    pub(crate) fn next_in_rotation(&mut self, may_start: impl Fn(&Handler) -> bool) -> Option<usize> {
        let count = self.by_priority.len();
        let steps = (0..count).map(|step| (self.next + step) % count);
        let found = { steps }.find(|position| may_start(&self.all[self.by_priority[*position]]))?;
        self.next = (found + 1) % count;
        Some(self.by_priority[found])
    }

    /// The handler with the highest priority is next.
    pub(crate) fn restart_rotation(&mut self) {
        self.next = 0;
    }

    /// Claimed events of all handlers that have not started.
    pub(crate) fn queued(&self) -> usize {
        self.all.iter().map(Handler::queued).sum()
    }

    /// Whether a claim has marked an event as to be started at once: that one must start before any other.
    pub(crate) fn have_marked(&self) -> bool {
        self.all.iter().any(Handler::has_marked)
    }

    /// Events were appended to this topic.
    pub(crate) fn on_new_events(&mut self, topic: &TopicKey) {
        self.all.iter_mut().filter(|handler| handler.topic() == topic).for_each(Handler::want_claim);
    }

    /// Events were appended to topics that are not known.
    pub(crate) fn on_any_events(&mut self) {
        self.all.iter_mut().for_each(Handler::want_claim);
    }

    pub(crate) fn wake(&mut self, now: Now, polls: bool) {
        self.all.iter_mut().for_each(|handler| handler.wake(now, polls));
    }

    /// Drops every claimed event that has not started, without giving it back: the store has failed.
    pub(crate) fn drop_queued(&mut self) {
        self.all.iter_mut().for_each(|handler| drop(handler.remove_queued(|_| true)));
    }
}

impl Index<usize> for Handlers {
    type Output = Handler;
    fn index(&self, at: usize) -> &Handler {
        &self.all[at]
    }
}

impl IndexMut<usize> for Handlers {
    fn index_mut(&mut self, at: usize) -> &mut Handler {
        &mut self.all[at]
    }
}
