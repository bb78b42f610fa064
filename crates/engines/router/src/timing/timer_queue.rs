//! The queue of timers by due time. Timers with equal times fire in the order in which they were set.

use std::collections::BTreeSet;

use millrace_model::{Mono, Now, Timestamp};

/// A timer's position in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Armed {
    pub(crate) at: Mono,
    /// The time of day the timer waits for. `None` for a delay, and for a timer that was due and tries again.
    pub(crate) day: Option<Timestamp>,
}

/// Timers by number; numbers rise in the order in which the timers were set.
///
/// A time of day is converted to a monotonic time when its timer is set. Both clocks are read in whole milliseconds and
/// tick at different moments, so of two timers for one time of day the second may get the earlier monotonic time.
/// `moments` therefore only tells when to look; `days` decides which timer is first.
#[derive(Debug, Default)]
pub(crate) struct TimerQueue {
    moments: BTreeSet<(Mono, u64)>,
    days: BTreeSet<(Timestamp, u64)>,
}

impl TimerQueue {
    pub(crate) fn add(&mut self, timer: u64, armed: Armed) {
        self.moments.insert((armed.at, timer));
        self.days.extend(armed.day.map(|day| (day, timer)));
    }

    pub(crate) fn remove(&mut self, timer: u64, armed: Armed) {
        self.moments.remove(&(armed.at, timer));
        if let Some(day) = armed.day {
            self.days.remove(&(day, timer));
        }
    }

    /// Returns the timers behind a place, in the order of their moments.
    pub(crate) fn after(&self, place: Option<(Mono, u64)>) -> impl Iterator<Item = (Mono, u64)> + '_ {
        let from = place.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        self.moments.range((from, std::ops::Bound::Unbounded)).copied()
    }

    pub(crate) fn first(&self) -> Option<Mono> {
        self.moments.first().map(|(at, _)| *at)
    }

    /// Returns a timer that is due, if there is one. The timer stays in the queue until `remove`.
    ///
    /// `armed` returns the position of a timer in the queue.
    pub(crate) fn due(&self, now: Now, armed: impl Fn(u64) -> Option<Armed>) -> Option<u64> {
        let (at, timer) = *self.moments.first()?;
        if at > now.mono {
            return None;
        }
        let waits_for = armed(timer).and_then(|armed| armed.day);
        match (waits_for, self.days.first()) {
            // The first timer by time of day is due too, and the wall clock is what its owner asked for.
            (Some(day), Some((_, first))) if day <= now.wall => Some(*first),
            _ => Some(timer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_goes_by_its_clock_and_then_by_number() {
        let mut queue = TimerQueue::default();
        let armed = |timer: u64| match timer {
            1 => Some(Armed { at: Mono(11), day: Some(Timestamp(100)) }),
            2 => Some(Armed { at: Mono(10), day: Some(Timestamp(100)) }),
            3 => Some(Armed { at: Mono(10), day: None }),
            _ => None,
        };
        for timer in 1..=3 {
            queue.add(timer, armed(timer).unwrap());
        }
        let now = Now { mono: Mono(10), wall: Timestamp(100), steady_since: Mono(0) };
        let mut order = Vec::new();
        while let Some(timer) = queue.due(now, armed) {
            queue.remove(timer, armed(timer).unwrap());
            order.push(timer);
        }
        assert_eq!(order, [1, 2, 3]);
        assert_eq!(queue.first(), None);
    }
}
