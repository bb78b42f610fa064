//! Fairness: many ready watches starve neither timers nor one another, and timers do not starve watches.
#![allow(clippy::unwrap_used)]

mod harness;

use std::collections::BTreeMap;

use harness::{Harness, READABLE};
use millrace_reactor::{FirstDue, MS, PollEvent, PollReply, polls_until_reported_max};

const THOUSAND: u32 = 1000;
const FEWER: u32 = 200;

/// Creates watches that are always ready: on polled handles, on handles with computed readiness, or all on one handle.
fn ready_watches(kind: &str, watches: u32) -> Harness {
    let mut harness = Harness::new();
    harness.checks_invariants = false;
    for number in 10..10 + watches {
        let on = match kind {
            "one handle" => 10,
            _ => number,
        };
        match kind {
            "computed" => harness.computed(on, READABLE),
            _ => harness.polled(on, READABLE),
        }
        harness.watch(u64::from(number), on, READABLE).unwrap();
    }
    harness.sys_loop.check_invariants().unwrap();
    harness
}

/// In which POLL each watch was last reported.
#[derive(Default)]
struct LastSeen {
    polls: usize,
    last: BTreeMap<u64, usize>,
    longest: usize,
    timers: usize,
}

impl LastSeen {
    fn add(&mut self, reply: &PollReply) {
        self.polls += 1;
        for event in &reply.events {
            match event {
                PollEvent::Timer { .. } => self.timers += 1,
                PollEvent::Ready { watch_id, .. } => {
                    let last = self.last.insert(watch_id.0.get(), self.polls).unwrap_or(0);
                    self.longest = self.longest.max(self.polls - last);
                }
            }
        }
    }

    /// The longest time that a watch went without a report, in POLLs; includes watches that are still waiting.
    fn longest(&self, watches: u32) -> usize {
        let waiting = self.last.values().map(|last| self.polls - last).max().unwrap_or(self.polls);
        let missing = if self.last.len() < watches as usize { self.polls } else { 0 };
        self.longest.max(waiting).max(missing)
    }
}

#[test]
fn a_repeating_timer_is_delivered_in_every_due_poll_beside_a_thousand_ready_watches() {
    for kind in ["polled", "computed", "one handle"] {
        let mut harness = ready_watches(kind, THOUSAND);
        harness.arm(1, FirstDue::After(10 * MS), 10 * MS).unwrap();
        let bound = polls_until_reported_max(THOUSAND as usize, 8);
        let mut seen = LastSeen::default();
        for poll in 1..=5 * bound {
            harness.advance_ns(4 * MS);
            let is_due = (poll * 4) % 10 < 4;
            let reply = harness.poll(8);
            let timers = reply.events.iter().filter(|event| matches!(event, PollEvent::Timer { .. })).count();
            assert_eq!(timers, usize::from(is_due), "{kind}, POLL {poll}");
            assert_eq!((reply.events.len(), reply.more), (8, true));
            seen.add(&reply);
        }
        harness.sys_loop.check_invariants().unwrap();
        assert!(seen.longest(THOUSAND) <= bound, "{kind}: {} POLLs, at most {bound}", seen.longest(THOUSAND));
    }
}

#[test]
fn every_watch_is_reported_within_the_bound_whatever_timers_are_due() {
    for (max_events, timers) in [(1, 1), (1, 50), (2, 50), (3, 50), (8, 3), (8, 50), (64, 500)] {
        let mut harness = ready_watches("polled", FEWER);
        for id in 1..=timers {
            harness.arm(id, FirstDue::After(0), 1).unwrap();
        }
        let bound = polls_until_reported_max(FEWER as usize, max_events as usize);
        let mut seen = LastSeen::default();
        for _ in 0..2 * bound + 2 {
            harness.advance_ns(1000);
            seen.add(&harness.poll(max_events));
        }
        assert!(seen.longest(FEWER) <= bound, "{max_events}: {} POLLs, at most {bound}", seen.longest(FEWER));
        assert!(seen.timers >= seen.polls / 2, "{max_events}: {} timer events", seen.timers);
    }
}

#[test]
fn every_due_timer_is_delivered_within_a_bound_whatever_watches_are_ready() {
    for (max_events, timers) in [(1_u32, 40_u64), (2, 40), (8, 40), (9, 100)] {
        let mut harness = ready_watches("computed", FEWER);
        for id in 1..=timers {
            harness.arm(id, FirstDue::After(0), 1).unwrap();
        }
        // Timers get half of the slots, rounded down; a single slot goes to a timer every second time.
        let bound = match max_events as usize {
            1 => 2 * timers as usize,
            slots => (timers as usize).div_ceil(slots / 2),
        };
        let mut last: BTreeMap<u64, usize> = (1..=timers).map(|id| (id, 0)).collect();
        for poll in 1..=4 * bound {
            harness.advance_ns(1000);
            for event in harness.poll(max_events).events {
                if let PollEvent::Timer { timer_id, .. } = event {
                    let before = last.insert(timer_id.0.get(), poll).unwrap();
                    assert!(poll - before <= bound, "{max_events}: timer after {} POLLs", poll - before);
                }
            }
        }
        assert!(last.values().all(|last| 4 * bound - last < bound), "{max_events}: {last:?}");
    }
}

#[test]
fn slots_that_one_side_does_not_need_go_to_the_other() {
    let mut harness = ready_watches("computed", FEWER);
    harness.arm(1, FirstDue::After(0), 0).unwrap();
    let reply = harness.poll(100);
    let timers = reply.events.iter().filter(|event| matches!(event, PollEvent::Timer { .. })).count();
    assert_eq!((reply.events.len(), timers), (100, 1));

    let mut harness = Harness::new();
    harness.computed(4, READABLE);
    harness.watch(1, 4, READABLE).unwrap();
    for id in 1..=200 {
        harness.arm(id, FirstDue::After(0), 0).unwrap();
    }
    let reply = harness.poll(100);
    let timers = reply.events.iter().filter(|event| matches!(event, PollEvent::Timer { .. })).count();
    assert_eq!((reply.events.len(), timers), (100, 99));
}

#[test]
fn a_timer_takes_the_single_slot_first_and_a_watch_the_next() {
    let mut harness = ready_watches("computed", FEWER);
    harness.arm(1, FirstDue::After(0), 1).unwrap();
    let kinds: Vec<bool> = (0..6)
        .map(|_| {
            harness.advance_ns(10);
            matches!(harness.poll(1).events[..], [PollEvent::Timer { .. }])
        })
        .collect();
    assert_eq!(kinds, [true, false, true, false, true, false]);
}

#[test]
fn the_bound_is_the_number_of_watches_over_their_share_of_the_slots() {
    assert_eq!(polls_until_reported_max(1000, 8), 250);
    assert_eq!(polls_until_reported_max(1000, 9), 200);
    assert_eq!(polls_until_reported_max(1000, 2), 1000);
    assert_eq!(polls_until_reported_max(1000, 1), 2000);
    assert_eq!(polls_until_reported_max(1, 8), 1);
}
