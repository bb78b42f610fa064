//! The timer queue: monotonic deadlines; equal ones fire in the order they were set.

use std::collections::BTreeMap;

use millrace_model::Mono;

use crate::ids::CallId;

#[derive(Debug, Default)]
pub(crate) struct RunTimers {
    queue: BTreeMap<TimerKey, RunTimer>,
    set: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    pub(crate) at: Mono,
    order: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunTimer {
    /// For [`TimerKind::Deadline`] only the run in it is used.
    pub(crate) call: CallId,
    pub(crate) kind: TimerKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerKind {
    /// The run's answer, which is known already, takes effect.
    Answer,
    Wake {
        token: u64,
    },
    /// The run has reached its deadline and fails.
    Deadline,
}

impl RunTimers {
    pub(crate) fn set(&mut self, at: Mono, timer: RunTimer) -> TimerKey {
        self.set += 1;
        let key = TimerKey { at, order: self.set };
        self.queue.insert(key, timer);
        key
    }

    pub(crate) fn cancel(&mut self, key: TimerKey) {
        self.queue.remove(&key);
    }

    pub(crate) fn first(&self) -> Option<Mono> {
        self.queue.first_key_value().map(|(key, _)| key.at)
    }

    pub(crate) fn pop_due(&mut self, now: Mono) -> Option<(TimerKey, RunTimer)> {
        let first = self.queue.first_entry()?;
        if first.key().at > now {
            return None;
        }
        Some(first.remove_entry())
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TimerKey, &RunTimer)> {
        self.queue.iter()
    }
}
