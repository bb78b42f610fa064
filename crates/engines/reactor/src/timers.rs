//! The timers of a loop, by due time and by id.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use crate::messages::TimerId;
use crate::time::MonoNs;

/// Timers with equal due times are delivered in the order in which they were armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueueKey {
    due: MonoNs,
    order: u64,
}

#[derive(Clone, Copy, Debug)]
struct LoopTimer {
    key: QueueKey,
    interval_ns: Option<NonZeroU64>,
}

/// Two ordered maps: arming, cancelling and taking a due timer cost the logarithm of the number of timers.
#[derive(Debug, Default)]
pub(crate) struct LoopTimers {
    by_id: BTreeMap<TimerId, LoopTimer>,
    queue: BTreeMap<QueueKey, TimerId>,
    armed: u64,
}

impl LoopTimers {
    /// Arms a timer, replacing one with the same id.
    pub(crate) fn arm(&mut self, id: TimerId, due: MonoNs, interval_ns: Option<NonZeroU64>) {
        self.armed += 1;
        let key = QueueKey { due, order: self.armed };
        if let Some(replaced) = self.by_id.insert(id, LoopTimer { key, interval_ns }) {
            self.queue.remove(&replaced.key);
        }
        self.queue.insert(key, id);
    }

    /// Returns whether there was a timer with this id.
    pub(crate) fn cancel(&mut self, id: TimerId) -> bool {
        let timer = self.by_id.remove(&id);
        timer.is_some_and(|timer| self.queue.remove(&timer.key).is_some())
    }

    pub(crate) fn contains(&self, id: TimerId) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn first_due(&self) -> Option<MonoNs> {
        self.queue.first_key_value().map(|(key, _)| key.due)
    }

    pub(crate) fn is_due(&self, now: MonoNs) -> bool {
        self.first_due().is_some_and(|due| due <= now)
    }

    /// Counts the due timers, but not beyond `max`.
    pub(crate) fn count_due(&self, now: MonoNs, max: usize) -> usize {
        self.queue.keys().take(max).take_while(|key| key.due <= now).count()
    }

    /// Takes the timer that has been due for longest. A repeating timer is armed again for the first time after `now`
    /// on its grid (first due + n * interval): all periods that were missed are this one event, and a late delivery
    /// does not shift the next one.
    pub(crate) fn take_due(&mut self, now: MonoNs) -> Option<TimerId> {
        let first = self.queue.first_entry().filter(|first| first.key().due <= now)?;
        let (key, id) = first.remove_entry();
        let interval_ns = self.by_id.get(&id).and_then(|timer| timer.interval_ns);
        let next = interval_ns.map(|interval_ns| next_on_grid(key.due, interval_ns, now));
        match next {
            Some(due) => self.arm(id, due, interval_ns),
            None => {
                self.by_id.remove(&id);
            }
        }
        Some(id)
    }

    pub(crate) fn clear(&mut self) {
        self.by_id.clear();
        self.queue.clear();
    }

    /// Whether both maps hold the same timers.
    pub(crate) fn is_consistent(&self) -> bool {
        self.by_id.len() == self.queue.len()
            && self.by_id.iter().all(|(id, timer)| self.queue.get(&timer.key) == Some(id))
    }
}

/// Returns the first time after `now` that is a whole number of intervals after `due`, or the end of the clock. `due`
/// is not after `now`.
fn next_on_grid(due: MonoNs, interval_ns: NonZeroU64, now: MonoNs) -> MonoNs {
    let periods = (now.0.saturating_sub(due.0) / interval_ns.get()).saturating_add(1);
    MonoNs(due.0.saturating_add(periods.saturating_mul(interval_ns.get())))
}
